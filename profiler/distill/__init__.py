"""Makes a drafter for a verifier: the verifier writes a corpus, a small model learns from it, numbers say how well it drafts."""
