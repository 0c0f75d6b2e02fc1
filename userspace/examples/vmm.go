// SPDX-License-Identifier: MIT OR LGPL-2.1

// The VMM of vmm.c in Go: raw ioctls, the standard library, no cgo. What
// kvm_fastsys adds to any VMM is marked with the same numbers:
//
//	1  attach the VM, give it a policy, switch it on
//	2  make the calls that the kernel left to the VMM
//	3  tell the guest by CPUID that it can ask (this one asks anyway)
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	base   = 0x200000 // the guest's memory, here and there
	size   = 0x200000
	text   = base + 0x800
	tables = base + 0x1000
	hello  = "Hello from ring 0.\n"
)

var code = []byte{
	0xb8, 0x01, 0x53, 0x46, 0x4b, // mov $KFS_HC_SYSCALL, %eax
	0xbb, 1, 0, 0, 0, // mov $1 (write), %ebx
	0xbf, 1, 0, 0, 0, // mov $1 (stdout), %edi
	0xbe, 0x00, 0x08, 0x20, 0, // mov $text, %esi
	0xba, byte(len(hello)), 0, 0, 0, // mov $length, %edx
	0x0f, 0x01, 0xd9, // vmmcall (KVM makes it vmcall)
	0xe7, 0x10, // out %eax, $0x10: the result
	0xb8, 0x01, 0x53, 0x46, 0x4b, // the same for call 39, getpid
	0xbb, 39, 0, 0, 0,
	0x0f, 0x01, 0xd9,
	0xe7, 0x11, // out %eax, $0x11
}

// linux/kvm.h
const (
	kvmCreateVM            = 0xae01
	kvmGetVcpuMmapSize     = 0xae04
	kvmGetSupportedCpuid   = 0xc008ae05
	kvmCreateVcpu          = 0xae41
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmRun                 = 0xae80
	kvmSetRegs             = 0x4090ae82
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84
	kvmSetCpuid2           = 0x4008ae90
	exitIO                 = 2
	exitHypercall          = 3
)

func ioctl(fd, number uintptr, arg unsafe.Pointer) (uintptr, syscall.Errno) {
	ret, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, number, uintptr(arg))
	return ret, errno
}

func must(what string, ret uintptr, errno syscall.Errno) uintptr {
	if errno != 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, errno)
		os.Exit(1)
	}
	return ret
}

// do is for the ioctls that have to work.
func do(what string, fd, number uintptr, arg unsafe.Pointer) uintptr {
	ret, errno := ioctl(fd, number, arg)
	return must(what, ret, errno)
}

func mmap(at, length, flags, fd uintptr) uintptr {
	ret, _, errno := syscall.Syscall6(syscall.SYS_MMAP, at, length,
		syscall.PROT_READ|syscall.PROT_WRITE, flags, fd, 0)
	return must("mmap", ret, errno)
}

// memory is the guest's, at the address it has in both.
func memory(base uintptr) *[size]byte {
	return *(**[size]byte)(unsafe.Pointer(&base))
}

// startState fills KVM's structures as words: linux/kvm.h says what is where.
func startState(kvm, vcpu uintptr) {
	// 3: 127 entries of 40 bytes behind a header of 8, ours in the last place
	var cpuid [2 + 128*10]uint32
	cpuid[0] = 127
	do("CPUID", kvm, kvmGetSupportedCpuid, unsafe.Pointer(&cpuid))
	ours := cpuid[2+cpuid[0]*10:]
	ours[0] = KFS_CPUID_LEAF
	ours[3] = KFS_ABI_VERSION
	ours[4], ours[5], ours[6] = KFS_CPUID_EBX, KFS_CPUID_ECX, KFS_CPUID_EDX
	cpuid[0]++
	do("CPUID", vcpu, kvmSetCpuid2, unsafe.Pointer(&cpuid))

	// 64-bit mode with one page of 2 MB, mapped to itself
	table := (*[1536]uint64)(unsafe.Pointer(&memory(base)[tables-base]))
	table[0] = (tables + 0x1000) | 3
	table[512] = (tables + 0x2000) | 3
	table[1024+base/size] = base | 0x83
	var sregs [39]uint64
	do("KVM_GET_SREGS", vcpu, kvmGetSregs, unsafe.Pointer(&sregs))
	sregs[0] = 0 // CS: limit, selector 8, type 11, present; s, l, g
	sregs[1] = 0xffffffff | 8<<32 | 11<<48 | 1<<56
	sregs[2] = 1<<16 | 1<<24 | 1<<32
	sregs[28] = 0x80000001 // CR0, CR3, CR4, EFER
	sregs[30] = tables
	sregs[31] = 1 << 5
	sregs[33] = 0x500
	do("KVM_SET_SREGS", vcpu, kvmSetSregs, unsafe.Pointer(&sregs))
	regs := [18]uint64{16: base, 17: 2} // RIP, RFLAGS
	do("KVM_SET_REGS", vcpu, kvmSetRegs, unsafe.Pointer(&regs))
}

// attach is 1: without the module the VM runs all the same.
func attach(dev, vm uintptr) {
	// if (nr == write) allow; else answer EPERM
	filter := []syscall.SockFilter{
		{Code: 0x20, K: 4}, // arch
		{Code: 0x15, Jf: 3, K: 0xc000003e},
		{Code: 0x20, K: 0}, // nr
		{Code: 0x15, Jf: 1, K: syscall.SYS_WRITE},
		{Code: 0x06, K: 0x7fff0000},
		{Code: 0x06, K: 0x00050000 | uint32(syscall.EPERM)},
	}
	arg := KfsAttachVm{Flags: KFS_DEFER_EXIT, VmFd: uint32(vm), Mode: KFS_MODE_IDENTITY}
	arg.Size = uint32(unsafe.Sizeof(arg))
	control := do("KFS_ATTACH_VM", dev, KFS_ATTACH_VM, unsafe.Pointer(&arg))
	policy := KfsSetPolicy{Count: uint32(len(filter))}
	policy.Size = uint32(unsafe.Sizeof(policy))
	policy.Filter = uint64(uintptr(unsafe.Pointer(&filter[0])))
	do("KFS_SET_POLICY", control, KFS_SET_POLICY, unsafe.Pointer(&policy))
	runtime.KeepAlive(filter)
	enable := KfsEnable{}
	enable.Size = uint32(unsafe.Sizeof(enable))
	do("KFS_ENABLE", control, KFS_ENABLE, unsafe.Pointer(&enable))
}

// deferred is 2: a call left to the VMM, under the same policy as above.
func deferred(nr uint64, args []uint64) uint64 {
	ret, errno := uintptr(0), syscall.EPERM
	if nr == syscall.SYS_WRITE {
		ret, _, errno = syscall.Syscall(uintptr(nr), uintptr(args[0]), uintptr(args[1]), uintptr(args[2]))
	}
	if errno != 0 {
		return uint64(-int64(errno))
	}
	return uint64(ret)
}

func main() {
	runtime.LockOSThread() // a vCPU stays with its thread
	kvm, err := syscall.Open("/dev/kvm", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "/dev/kvm:", err)
		os.Exit(1)
	}
	vm := do("KVM_CREATE_VM", uintptr(kvm), kvmCreateVM, nil)
	vcpu := do("KVM_CREATE_VCPU", vm, kvmCreateVcpu, nil)
	const fixedNoreplace = 0x100000
	at := mmap(base, size, syscall.MAP_PRIVATE|syscall.MAP_ANON|fixedNoreplace, ^uintptr(0))
	copy(memory(at)[:], code)
	copy(memory(at)[text-base:], hello)
	slot := [4]uint64{0, base, size, base}
	do("memory", vm, kvmSetUserMemoryRegion, unsafe.Pointer(&slot))
	length := do("kvm_run", uintptr(kvm), kvmGetVcpuMmapSize, nil)
	run := (*[1024]uint64)(unsafe.Pointer(memory(mmap(0, length, syscall.MAP_SHARED, vcpu))))
	startState(uintptr(kvm), vcpu)

	dev, err := syscall.Open(KFS_DEVICE_PATH, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, KFS_DEVICE_PATH+":", err)
	} else {
		attach(uintptr(dev), vm)
	}
	for {
		ret, errno := ioctl(vcpu, kvmRun, nil)
		if errno == syscall.EINTR {
			continue // Go's own signals
		}
		must("KVM_RUN", ret, errno)
		// kvm_run as words; linux/kvm.h has the offsets
		switch reason := uint32(run[1]); {
		case reason == exitHypercall && run[4]>>32 == KFS_HC_SYSCALL:
			run[11] = deferred(run[4]&0xffffffff, run[5:8])
		case reason == exitIO:
			port := run[4] >> 16 & 0xffff
			result := int32(run[run[5]/8])
			name := map[uint64]string{0x10: "write", 0x11: "getpid"}[port]
			fmt.Printf("The guest's %s gave %d.\n", name, result)
			if port == 0x11 && result == -KFS_ENOSYS {
				os.Exit(3)
			} else if port == 0x11 {
				return
			}
		default:
			fmt.Fprintln(os.Stderr, "exit reason", reason)
			os.Exit(1)
		}
	}
}
