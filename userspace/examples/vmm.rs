// SPDX-License-Identifier: MIT OR LGPL-2.1
//! The VMM of vmm.c in Rust: raw ioctls, no library but libc. What kvm_fastsys
//! adds to any VMM is marked with the same numbers:
//!
//!  1  attach the VM, give it a policy, switch it on
//!  2  make the calls that the kernel left to the VMM
//!  3  tell the guest by CPUID that it can ask (this one asks anyway)
use libc::{c_int, c_void};

mod kfs_constants;
use kfs_constants::*;

const BASE: u64 = 0x20_0000; // the guest's memory, here and there
const SIZE: u64 = 0x20_0000;
const TEXT: u64 = BASE + 0x800;
const TABLES: u64 = BASE + 0x1000;
const HELLO: &[u8] = b"Hello from ring 0.\n";

const CODE: [u8; 45] = [
    0xb8, 0x01, 0x53, 0x46, 0x4b, // mov $KFS_HC_SYSCALL, %eax
    0xbb, 1, 0, 0, 0, // mov $1 (write), %ebx
    0xbf, 1, 0, 0, 0, // mov $1 (stdout), %edi
    0xbe, 0x00, 0x08, 0x20, 0, // mov $TEXT, %esi
    0xba, HELLO.len() as u8, 0, 0, 0, // mov $length, %edx
    0x0f, 0x01, 0xd9, // vmmcall (KVM makes it vmcall)
    0xe7, 0x10, // out %eax, $0x10: the result
    0xb8, 0x01, 0x53, 0x46, 0x4b, // the same for call 39, getpid
    0xbb, 39, 0, 0, 0, //
    0x0f, 0x01, 0xd9, //
    0xe7, 0x11, // out %eax, $0x11
];

// linux/kvm.h
const KVM_CREATE_VM: u64 = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_GET_SUPPORTED_CPUID: u64 = 0xc008_ae05;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;
const KVM_SET_CPUID2: u64 = 0x4008_ae90;
const EXIT_IO: u32 = 2;
const EXIT_HYPERCALL: u32 = 3;

fn ioctl<T>(fd: c_int, number: u64, arg: *mut T) -> c_int {
    unsafe { libc::ioctl(fd, number, arg as *mut c_void) }
}

fn check(what: &str, ret: c_int) -> c_int {
    if ret < 0 {
        eprintln!("{}: {}", what, std::io::Error::last_os_error());
        std::process::exit(1);
    }
    ret
}

/// Structures of KVM's as words: what is where stands in linux/kvm.h.
fn start_state(kvm: c_int, vcpu: c_int) {
    // 3: 127 entries of 40 bytes behind a header of 8, ours in the last place
    let mut cpuid = [0u32; 2 + 128 * 10];
    cpuid[0] = 127;
    check("CPUID", ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid.as_mut_ptr()));
    let ours = 2 + cpuid[0] as usize * 10;
    cpuid[ours] = KFS_CPUID_LEAF as u32;
    cpuid[ours + 3] = KFS_ABI_VERSION as u32;
    cpuid[ours + 4] = KFS_CPUID_EBX as u32;
    cpuid[ours + 5] = KFS_CPUID_ECX as u32;
    cpuid[ours + 6] = KFS_CPUID_EDX as u32;
    cpuid[0] += 1;
    check("CPUID", ioctl(vcpu, KVM_SET_CPUID2, cpuid.as_mut_ptr()));

    // 64-bit mode with one page of 2 MB, mapped to itself
    let table = TABLES as *mut u64;
    let mut sregs = [0u64; 39];
    check("KVM_GET_SREGS", ioctl(vcpu, KVM_GET_SREGS, sregs.as_mut_ptr()));
    unsafe {
        *table = (TABLES + 0x1000) | 3;
        *table.add(512) = (TABLES + 0x2000) | 3;
        *table.add(1024 + (BASE / SIZE) as usize) = BASE | 0x83;
    }
    sregs[0] = 0; // CS: limit, selector 8, type 11, present; s, l, g
    sregs[1] = 0xffff_ffff | 8 << 32 | 11 << 48 | 1 << 56;
    sregs[2] = 1 << 16 | 1 << 24 | 1 << 32;
    sregs[28] = 0x8000_0001; // CR0, CR3, CR4, EFER
    sregs[30] = TABLES;
    sregs[31] = 1 << 5;
    sregs[33] = 0x500;
    check("KVM_SET_SREGS", ioctl(vcpu, KVM_SET_SREGS, sregs.as_mut_ptr()));
    let mut regs = [0u64; 18];
    regs[16] = BASE; // RIP, RFLAGS
    regs[17] = 2;
    check("KVM_SET_REGS", ioctl(vcpu, KVM_SET_REGS, regs.as_mut_ptr()));
}

/// What the policy below says, for the calls that the VMM makes.
fn allowed(nr: u64) -> bool {
    nr == libc::SYS_write as u64
}

/// 1: without the module the VM runs all the same
fn attach(dev: c_int, vm: c_int) {
    // if (nr == write) allow; else answer EPERM
    let mut filter: [libc::sock_filter; 6] = [
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 4 }, // arch
        libc::sock_filter { code: 0x15, jt: 0, jf: 3, k: 0xc000_003e },
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }, // nr
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_write as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 },
    ];
    let mut vm_arg = kfs_attach_vm::new();
    vm_arg.flags = KFS_DEFER_EXIT as u32;
    vm_arg.vm_fd = vm as u32;
    vm_arg.mode = KFS_MODE_IDENTITY as u32;
    let control = check("KFS_ATTACH_VM", ioctl(dev, KFS_ATTACH_VM, &mut vm_arg));
    let mut policy = kfs_set_policy::new();
    policy.count = filter.len() as u32;
    policy.filter = filter.as_mut_ptr() as u64;
    check("KFS_SET_POLICY", ioctl(control, KFS_SET_POLICY, &mut policy));
    check("KFS_ENABLE", ioctl(control, KFS_ENABLE, &mut kfs_enable::new()));
}

fn main() {
    let null = std::ptr::null_mut::<c_void>();
    let open = |path: &str| unsafe {
        let path = std::ffi::CString::new(path).unwrap();
        libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC)
    };
    let map = |at: u64, size: usize, flags, fd| unsafe {
        libc::mmap(at as *mut c_void, size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0)
    };
    let kvm = check("/dev/kvm", open("/dev/kvm"));
    let vm = check("KVM_CREATE_VM", ioctl(kvm, KVM_CREATE_VM, null));
    let vcpu = check("KVM_CREATE_VCPU", ioctl(vm, KVM_CREATE_VCPU, null));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    assert_eq!(map(BASE, SIZE as usize, flags, -1), BASE as *mut c_void);
    unsafe {
        std::ptr::copy(CODE.as_ptr(), BASE as *mut u8, CODE.len());
        std::ptr::copy(HELLO.as_ptr(), TEXT as *mut u8, HELLO.len());
    }
    let mut slot = [0u64, BASE, SIZE, BASE];
    check("memory", ioctl(vm, KVM_SET_USER_MEMORY_REGION, slot.as_mut_ptr()));
    let size = check("kvm_run", ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, null));
    let run = map(0, size as usize, libc::MAP_SHARED, vcpu) as *mut u8;
    assert_ne!(run as *mut c_void, libc::MAP_FAILED);
    start_state(kvm, vcpu);

    let dev = open(KFS_DEVICE_PATH);
    if dev < 0 {
        eprintln!("{}: {}", KFS_DEVICE_PATH, std::io::Error::last_os_error());
    } else {
        attach(dev, vm);
    }
    loop {
        check("KVM_RUN", ioctl(vcpu, KVM_RUN, null));
        // what lies at an offset of kvm_run; linux/kvm.h has the offsets
        let word = |at: usize| unsafe { (run.add(at) as *mut u64).read_volatile() };
        match word(8) as u32 {
            // 2
            EXIT_HYPERCALL if word(32) >> 32 == KFS_HC_SYSCALL => unsafe {
                let (nr, args) = (word(32) & 0xffff_ffff, [word(40), word(48), word(56)]);
                let mut ret = -libc::EPERM as i64;
                if allowed(nr) {
                    ret = libc::syscall(nr as i64, args[0], args[1], args[2]);
                    if ret < 0 {
                        ret = -std::io::Error::last_os_error().raw_os_error().unwrap() as i64;
                    }
                }
                (run.add(88) as *mut i64).write_volatile(ret);
            },
            EXIT_IO => {
                let port = word(32) >> 16 & 0xffff;
                let result = word(word(40) as usize) as i32;
                let name = if port == 0x10 { "write" } else { "getpid" };
                println!("The guest's {} gave {}.", name, result);
                if port == 0x11 {
                    std::process::exit(if result == -(KFS_ENOSYS as i32) { 3 } else { 0 });
                }
            }
            reason => {
                eprintln!("exit reason {}", reason);
                std::process::exit(1);
            }
        }
    }
}
