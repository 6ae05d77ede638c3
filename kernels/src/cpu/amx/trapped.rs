//! The kernels as compiled for the processor's tiles, run where there are none.
//!
//! Each tile instruction is then an illegal one; a signal handler decodes it from its bytes, computes it on emulated
//! tiles, and continues after it.

use super::{detection, emulated::Emulated, tiles::Shape};
use std::{mem, ptr, sync::Mutex};

/// The tiles of the one thread that runs trapped code, while they are configured.
static TILES: Mutex<Option<Emulated>> = Mutex::new(None);

/// General registers by the number that instructions give them.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Where an instruction reads or writes.
struct Place {
    at: *mut u8,
    stride: usize,
    /// Of SIB and displacement.
    bytes: usize,
}

/// Decodes SIB and displacement, which follow `code`'s four bytes and its ModRM `modrm`.
///
/// # Safety
/// `code` is an instruction with a memory operand, about to run with these registers.
unsafe fn place(code: *const u8, modrm: u8, registers: &[libc::greg_t]) -> Place {
    // SAFETY: `index` is one of the registers, and the bytes are those of the instruction.
    let (register, byte) =
        (|index: u8| registers[REGISTERS[usize::from(index)] as usize] as usize, |i| unsafe { *code.add(i) });
    // In the prefix, the upper bits of index and base are inverted.
    let (upper_index, upper_base) = (!byte(1) >> 6 & 1, !byte(1) >> 5 & 1);
    let (mut base, mut stride, mut bytes) = (modrm & 7, 0, 0);
    assert!(modrm >> 6 != 0 || base != 5, "an address relative to the instruction");
    if base == 4 {
        let sib = byte(5);
        base = sib & 7;
        assert!(modrm >> 6 != 0 || base != 5, "an address without a base");
        stride = register(sib >> 3 & 7 | upper_index << 3) << (sib >> 6);
        bytes = 1;
    }
    let displacement = match modrm >> 6 {
        0 => 0,
        1 => {
            bytes += 1;
            isize::from(byte(4 + bytes).cast_signed())
        }
        _ => {
            bytes += 4;
            i32::from_le_bytes([1, 2, 3, 4].map(|i| byte(bytes + i))) as isize
        }
    };
    let at = register(base | upper_base << 3).wrapping_add_signed(displacement);
    Place { at: ptr::with_exposed_provenance_mut(at), stride, bytes }
}

/// Computes the tile instruction that was trapped; any other ends the process.
extern "C" fn on_illegal_instruction(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the state of the thread, at an instruction whose operands are valid.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let code: *const u8 = ptr::with_exposed_provenance(registers[libc::REG_RIP as usize] as usize);
        let [escape, map, prefix, opcode, modrm] = code.cast::<[u8; 5]>().read_unaligned();
        assert!(escape == 0xc4 && map & 0x1f == 2 && prefix & 0x84 == 0, "not a tile instruction");
        let (reg, rm, third) =
            (usize::from(modrm >> 3 & 7), usize::from(modrm & 7), usize::from(!prefix >> 3 & 15));
        let mut current = TILES.lock().unwrap();
        let mut bytes = 5;
        match (opcode, prefix & 3, modrm >> 6) {
            (0x49, 0, 3) if modrm == 0xc0 => *current = None,
            (0x49, 0, 0..3) if reg == 0 => {
                let place = place(code, modrm, registers);
                bytes += place.bytes;
                let config = place.at.cast::<[u8; 64]>().read_unaligned();
                assert_eq!(config[..16], [[1, 0].as_slice(), &[0; 14]].concat());
                assert!(config[32..48] == [0; 16] && config[56..] == [0; 8], "reserved bytes: {config:?}");
                let shapes = std::array::from_fn(|i| {
                    assert_eq!(config[17 + 2 * i], 0, "bytes of a row: {config:?}");
                    Shape { rows: config[48 + i], row_bytes: config[16 + 2 * i] }
                });
                *current = Some(Emulated::new(shapes));
            }
            (0x4b, 2 | 3, 0..3) => {
                let place = place(code, modrm, registers);
                bytes += place.bytes;
                let tiles = current.as_mut().unwrap();
                if prefix & 3 == 3 {
                    tiles.load(reg, place.at, place.stride);
                } else {
                    assert_eq!(place.stride, 64);
                    tiles.store(reg, place.at);
                }
            }
            (0x5c, 2, 3) => current.as_mut().unwrap().multiply(reg, rm, third),
            (0x5e, 2, 3) => current.as_mut().unwrap().multiply_bytes(reg, rm, third, i32::from),
            (0x5e, 3, 3) => {
                current.as_mut().unwrap().multiply_bytes(reg, rm, third, |b| i32::from(b.cast_signed()));
            }
            _ => unreachable!("a tile instruction {opcode:02x} {prefix:02x} {modrm:02x} of no kernel"),
        }
        registers[libc::REG_RIP as usize] += bytes as libc::greg_t;
    }
}

/// Runs `kernels`, each of its tile instructions trapped.
fn trapped(kernels: impl FnOnce()) {
    // SAFETY: the handler is for this signal, and keeps to what may be called in one: it was raised by the instruction
    // at hand, and the lock is its own.
    unsafe {
        let (mut action, mut before) = (mem::zeroed::<libc::sigaction>(), mem::zeroed());
        action.sa_sigaction = on_illegal_instruction as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, &raw mut before), 0);
        kernels();
        assert_eq!(libc::sigaction(libc::SIGILL, &raw const before, ptr::null_mut()), 0);
    }
    assert!(TILES.lock().unwrap().is_none(), "tiles were not released");
}

/// Runs kernels that were compiled for the processor's tiles: on these, or trapped. The processor has AVX-512.
///
/// Nothing is run, and the result is false, where tiles exist but may not be used: some instructions would not trap
/// there.
pub(in crate::cpu) fn run(kernels: impl FnOnce()) -> bool {
    let is_usable = detection::usable();
    if is_usable {
        kernels();
        return true;
    }
    let can_be_trapped = !detection::has_instructions();
    if can_be_trapped {
        trapped(kernels);
    }
    can_be_trapped
}
