// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Holds one VM of each kind KVM counts in static keys, for as long as the
 * machine runs: the first and the last of them are when KVM patches kernel text,
 * which the emulator does not survive when a second CPU runs that text. Started
 * by init in parallel mode while there is one CPU only. Leaves /run/still when
 * it holds them.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/kvm.h>

/* A vCPU without an APIC, or one whose APIC is switched off. */
static int hold(int kvm, bool irqchip)
{
	int vm = ioctl(kvm, KVM_CREATE_VM, 0UL);
	struct kvm_sregs sregs;
	int vcpu;

	if (vm < 0 || (irqchip && ioctl(vm, KVM_CREATE_IRQCHIP, 0UL)))
		return -1;
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0UL);
	if (vcpu < 0 || ioctl(vcpu, KVM_GET_SREGS, &sregs))
		return -1;
	sregs.apic_base &= ~(1ULL << 11);
	return irqchip ? ioctl(vcpu, KVM_SET_SREGS, &sregs) : 0;
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int mark;

	if (kvm < 0 || hold(kvm, true) || hold(kvm, false)) {
		perror("still: /dev/kvm");
		return 1;
	}
	mark = open("/run/still", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (mark < 0) {
		perror("still: /run/still");
		return 1;
	}
	close(mark);
	for (;;)
		pause();
}
