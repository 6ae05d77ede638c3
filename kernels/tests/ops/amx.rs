//! Linears of the AMX tier against their class, and as compiled for the processor's tiles against emulated ones.

use half::bf16;
use ygg_kernels::{
    Matrix, Nonlinearity, Rows, RowsMut, WeightFormat,
    cpu::{Amx, Avx512, Epilogue, Kernels, PackedLinear},
    testing::{Noise, Scratch, bits, matrix},
};

/// The class of a bf16 linear, one output of one row: `weights` as in a file.
fn by_the_class(weights: &[u8], x: &[f32]) -> f32 {
    let x: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    let mut total = 0.0_f32;
    for (x, block) in x.chunks(32).zip(weights.chunks(64)) {
        let mut chains = [0.0_f32; 2];
        for (k, x) in x.iter().enumerate() {
            let weight = bf16::from_le_bytes([block[2 * k], block[2 * k + 1]]).to_f32();
            chains[k % 2] = x.mul_add(weight, chains[k % 2]);
        }
        total += chains[0] + chains[1];
    }
    total
}

/// Every number of blocks in flight and of row groups, several chunks, a last tile that is not full.
#[test]
fn linears_follow_their_class_bit_for_bit() {
    let Some(proof) = Avx512::detect() else { return };
    let kernels = Amx::detect().map(Kernels::amx);
    let mut noise = Noise::new(21);
    for format in [WeightFormat::BF16] {
        for (width, blocks) in [
            (1, 1),
            (2, 6),
            (15, 3),
            (16, 4),
            (17, 3),
            (32, 5),
            (33, 2),
            (48, 1),
            (63, 3),
            (64, 2),
            (70, 3),
            (130, 1),
        ] {
            let (rows, columns) = (21, 32 * blocks);
            let bytes = matrix(format, rows, columns, &mut noise);
            let weights = Matrix::new(format, rows, columns, &bytes).unwrap();
            let x = noise.values(width * columns);
            let expected: Vec<_> = x
                .chunks(columns)
                .flat_map(|x| (0..rows).map(|n| by_the_class(weights.row(n), x)).collect::<Vec<_>>())
                .collect();
            let packed = PackedLinear::stack(&[weights]).unwrap();
            for kernels in kernels.into_iter().chain([Kernels::emulated_amx(proof)]) {
                let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, columns));
                let prepared = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
                let mut found = vec![f32::NAN; width * rows];
                let out = RowsMut::new(&mut found, rows);
                kernels.linear(&packed, &prepared, 0..packed.tiles(), Epilogue::Store, out);
                assert_eq!(bits(&found), bits(&expected), "{format}, {width} rows, {blocks} blocks");
            }
        }
    }
}

/// All but linears over bf16 weights have the bits of AVX-512.
#[test]
fn other_linears_are_those_of_avx512() {
    let Some(proof) = Avx512::detect() else { return };
    let mut noise = Noise::new(22);
    for format in [WeightFormat::F16, WeightFormat::F32, WeightFormat::Q4_K, WeightFormat::Q6_K] {
        let columns = if format.block_len() == 1 { 70 } else { 2 * format.block_len() };
        let bytes = matrix(format, 20, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 20, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(9 * columns);
        let [avx512, amx] = [Kernels::avx512(proof), Kernels::emulated_amx(proof)].map(|kernels| {
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, 9, columns));
            let prepared = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
            let mut found = vec![f32::NAN; 9 * 20];
            kernels.linear(&packed, &prepared, 0..2, Epilogue::Store, RowsMut::new(&mut found, 20));
            bits(&found)
        });
        assert_eq!(avx512, amx);
    }
}

/// Every kernel and shape of a chunk: as compiled for the processor's tiles, against emulation.
///
/// Nothing to run without AVX-512, nor where tiles exist that this process may not use.
#[cfg(target_os = "linux")]
#[test]
fn compiled_kernels_compute_what_emulation_does() {
    let Some(proof) = Avx512::detect() else { return };
    Amx::run_compiled(|compiled| {
        let ways = [Kernels::emulated_amx(proof), Kernels::amx(compiled)];
        let mut noise = Noise::new(31);
        for format in [WeightFormat::BF16, WeightFormat::Q4_K, WeightFormat::Q6_K] {
            for (width, blocks) in [(1, 7), (16, 2), (21, 3), (32, 1), (40, 2), (64, 2), (71, 1)] {
                let (rows, columns) = (19, 32.max(format.block_len()) * blocks);
                let bytes = [(); 2].map(|()| matrix(format, rows, columns, &mut noise));
                let [gate, up] = [0, 1].map(|i| Matrix::new(format, rows, columns, &bytes[i]).unwrap());
                let (pair, plain) =
                    (PackedLinear::gated(&gate, &up).unwrap(), PackedLinear::stack(&[gate]).unwrap());
                let x = noise.values(width * columns);
                let [emulated, compiled] = ways.map(|kernels| {
                    let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, columns));
                    let x = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
                    let [mut one, mut gated] = [(); 2].map(|()| vec![f32::NAN; width * rows]);
                    kernels.linear(&plain, &x, 0..2, Epilogue::Store, RowsMut::new(&mut one, rows));
                    let out = RowsMut::new(&mut gated, rows);
                    kernels.linear_gated(Nonlinearity::Silu, &pair, &x, 0..2, out);
                    [bits(&one), bits(&gated)]
                });
                assert!(emulated == compiled, "{format}, {width} rows, {blocks} blocks");
            }
        }
    });
}
