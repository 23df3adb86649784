//! Programs that the kernel holds.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use libbpf_sys as c;

use crate::call::{check, descriptor};
use crate::pin;

/// Maps of one program, at most (`MAX_USED_MAPS`).
const MOST_MAPS: usize = 64;

/// What the kernel says of a program.
#[derive(Debug, Clone)]
pub struct ProgramDetails {
    /// Its number in this kernel.
    pub id: u32,
    /// A hash of its instructions.
    pub tag: [u8; 8],
    /// At most 15 bytes.
    pub name: String,
    /// How many the verifier looked at.
    pub verified_instructions: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
    /// Of the maps that it uses.
    pub map_ids: Vec<u32>,
}

/// A descriptor of the program with an id.
pub fn by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { descriptor(c::bpf_prog_get_fd_by_id(id)) }
}

/// The program behind a pin.
pub fn pinned(path: &Path) -> io::Result<OwnedFd> {
    pin::open(path)
}

/// Name of the program with an id; None when it is gone.
pub fn name_of(id: u32) -> Option<String> {
    Some(details_by_id(id).ok()?.name)
}

/// What the kernel says of the program with an id.
pub fn details_by_id(id: u32) -> io::Result<ProgramDetails> {
    by_id(id).and_then(details)
}

/// What the kernel says of a program.
pub fn details(program: impl AsFd) -> io::Result<ProgramDetails> {
    let mut map_ids = [0u32; MOST_MAPS];
    let mut info = c::bpf_prog_info {
        nr_map_ids: map_ids.len() as u32,
        map_ids: map_ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: `map_ids` has room for the number named beside it.
    unsafe { ask(&program, &mut info) }?;
    // SAFETY: the kernel ends the name with NUL inside its 16 bytes.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(ProgramDetails {
        id: info.id,
        tag: info.tag,
        name,
        verified_instructions: info.verified_insns,
        jited_bytes: info.jited_prog_len,
        map_ids: map_ids.iter().copied().take(info.nr_map_ids as usize).collect(),
    })
}

/// # Safety
/// Every buffer that `info` names has the size named beside it and outlives the call.
unsafe fn ask(program: &impl AsFd, info: &mut c::bpf_prog_info) -> io::Result<()> {
    let mut len = size_of::<c::bpf_prog_info>() as u32;
    let program = program.as_fd().as_raw_fd();
    // SAFETY: `info` has `len` bytes and outlives the call; its buffers are the caller's promise.
    check(unsafe { c::bpf_prog_get_info_by_fd(program, info, &mut len) }).map(drop)
}

/// Which functions each function of a program calls, by their order in the program.
pub fn calls(program: impl AsFd) -> io::Result<Vec<Vec<usize>>> {
    let mut info = c::bpf_prog_info::default();
    // SAFETY: without buffers the kernel only says how long they must be.
    unsafe { ask(&program, &mut info) }?;
    let mut code = vec![0u8; info.xlated_prog_len as usize];
    let record = info.func_info_rec_size as usize;
    let mut functions = vec![0u8; info.nr_func_info as usize * record];
    let mut asked = c::bpf_prog_info {
        xlated_prog_len: info.xlated_prog_len,
        xlated_prog_insns: code.as_mut_ptr() as u64,
        nr_func_info: info.nr_func_info,
        func_info_rec_size: info.func_info_rec_size,
        func_info: functions.as_mut_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: both buffers have the sizes named beside them.
    unsafe { ask(&program, &mut asked) }?;
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let starts: Vec<usize> = functions.chunks_exact(record.max(1)).map(word).collect();
    Ok(calls_in(&code, &starts))
}

/// Of functions that start at these instructions.
fn calls_in(code: &[u8], starts: &[usize]) -> Vec<Vec<usize>> {
    const SIZE: usize = size_of::<c::bpf_insn>();
    let function_of = |insn: usize| starts.partition_point(|start| *start <= insn).saturating_sub(1);
    let mut calls = vec![Vec::new(); starts.len().max(1)];
    for (at, insn) in code.chunks_exact(SIZE).enumerate() {
        let (source, target) =
            (insn[1] >> 4, at as i64 + 1 + i64::from(i16::from_ne_bytes([insn[2], insn[3]])));
        if u32::from(insn[0]) == c::BPF_JMP | c::BPF_CALL && u32::from(source) == c::BPF_PSEUDO_CALL {
            calls[function_of(at)].push(function_of(target as usize));
        }
    }
    calls
}

/// One instruction as the kernel takes it: code, registers, offset, immediate value.
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// Class, operation and source of the operand.
    pub code: u8,
    /// Number of the register that is written.
    pub target: u8,
    /// Number of the register that is read.
    pub source: u8,
    /// Of a jump, in instructions, or of memory, in bytes.
    pub offset: i16,
    /// The operand, where it is no register.
    pub value: i32,
}

impl Instruction {
    fn raw(self) -> c::bpf_insn {
        let mut raw =
            c::bpf_insn { code: self.code, off: self.offset, imm: self.value, ..Default::default() };
        raw.set_dst_reg(self.target);
        raw.set_src_reg(self.source);
        raw
    }
}

/// Loads an XDP program that is too short for a file of its own.
pub fn load_xdp(code: &[Instruction]) -> io::Result<OwnedFd> {
    let code: Vec<c::bpf_insn> = code.iter().map(|instruction| instruction.raw()).collect();
    let mut options = c::bpf_prog_load_opts {
        sz: size_of::<c::bpf_prog_load_opts>() as _,
        expected_attach_type: c::BPF_XDP,
        ..Default::default()
    };
    let (kind, no_name, license) = (c::BPF_PROG_TYPE_XDP, std::ptr::null(), c"GPL".as_ptr());
    let (place, length) = (code.as_ptr(), code.len() as _);
    // SAFETY: code and options outlive the call with the sizes they are given with; the call makes a descriptor.
    unsafe { descriptor(c::bpf_prog_load(kind, no_name, license, place, length, &mut options)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_belong_to_the_function_they_stand_in() {
        let call = |offset: i16| {
            let mut bytes = [0u8; 8];
            (bytes[0], bytes[1]) = ((c::BPF_JMP | c::BPF_CALL) as u8, (c::BPF_PSEUDO_CALL as u8) << 4);
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            bytes
        };
        let other = [0u8; 8];
        // function 0 is two instructions and calls function 1; function 1 calls function 2
        let code = [call(1), other, call(1), other, other].concat();
        assert_eq!(calls_in(&code, &[0, 2, 4]), [vec![1], vec![2], vec![]]);
        assert_eq!(calls_in(&[], &[]), [Vec::<usize>::new()]);
    }
}
