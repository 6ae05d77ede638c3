//! Tests of what needs no model.
