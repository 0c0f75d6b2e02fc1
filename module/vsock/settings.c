// SPDX-License-Identifier: GPL-2.0
/*
 * What root can set, as module parameters and under net.kvm_fastsys_vsock, and
 * the counters (parameter `stats`). Both ways lead through one list of settings.
 */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysctl.h>

#include "../compat/vsock.h"
#include "../symbols.h"
#include "vsock.h"

struct kfs_vsock_setting {
	int (*set)(const char *val);
	int (*get)(char *buf, size_t size);
};

DEFINE_PER_CPU(struct kfs_vsock_stats, kfs_vsock_counters);

const char *const kfs_vsock_reasons[KFS_FLUSH_REASONS] = {
	[KFS_FLUSH_FULL] = "full",
	[KFS_FLUSH_TIME] = "time",
	[KFS_FLUSH_TIMER] = "timer",
	[KFS_FLUSH_CREDIT] = "credit",
	[KFS_FLUSH_UNCORK] = "uncork",
	[KFS_FLUSH_RECEIVE] = "receive",
	[KFS_FLUSH_POLL] = "poll",
	[KFS_FLUSH_DIRECT] = "direct",
	[KFS_FLUSH_SHUTDOWN] = "shutdown",
	[KFS_FLUSH_CLOSE] = "close",
	[KFS_FLUSH_OPTION] = "option",
	[KFS_FLUSH_OFF] = "off",
};

u32 kfs_vsock_generation = 1;
unsigned int kfs_vsock_delay_us = 100;
unsigned int kfs_vsock_max_kb = 16384;
static bool kfs_vsock_nodelay;
static unsigned int kfs_vsock_port_count;
static u32 kfs_vsock_ports[KFS_VSOCK_MAX_PORTS];

/* Settings before and after loading: until `ready` they are only noted. */
static bool kfs_vsock_ready;
static int kfs_vsock_wanted;
static DEFINE_MUTEX(kfs_vsock_settings_lock);

static const char *const kfs_vsock_modes[] = {
	[KFS_VSOCK_OFF] = "off",
	[KFS_VSOCK_ON] = "on",
	[KFS_VSOCK_OBSERVE] = "observe",
};

/* Sockets look at the settings again, each at its next write. */
void kfs_vsock_moved(void)
{
	/*
	 * Pairs with kfs_vsock_judge(): the setting, then its announcement,
	 * which is never 0 (see `quick`).
	 */
	smp_wmb();
	WRITE_ONCE(kfs_vsock_generation, kfs_vsock_generation + 1 ?: 1);
}

enum kfs_vsock_kind kfs_vsock_default(const struct vsock_sock *vsk)
{
	unsigned int i, count = READ_ONCE(kfs_vsock_port_count);

	if (READ_ONCE(kfs_vsock_nodelay))
		return KFS_VSOCK_NEVER;
	if (!count)
		return KFS_VSOCK_MERGE;
	for (i = 0; i < count; i++) {
		u32 port = READ_ONCE(kfs_vsock_ports[i]);

		if (port == vsk->local_addr.svm_port ||
		    port == vsk->remote_addr.svm_port)
			return KFS_VSOCK_MERGE;
	}
	return KFS_VSOCK_NEVER;
}

static int kfs_vsock_mode_set(const char *val)
{
	int mode = __sysfs_match_string(kfs_vsock_modes,
					ARRAY_SIZE(kfs_vsock_modes), val);

	if (mode < 0)
		return mode;
	kfs_vsock_wanted = mode;
	return kfs_vsock_ready ? kfs_vsock_set_mode(mode) : 0;
}

static int kfs_vsock_mode_get(char *buf, size_t size)
{
	return scnprintf(buf, size, "%s\n",
			 kfs_vsock_modes[READ_ONCE(kfs_vsock_live)]);
}

static int kfs_vsock_nodelay_set(const char *val)
{
	bool nodelay;
	int err = kstrtobool(val, &nodelay);

	if (err)
		return err;
	WRITE_ONCE(kfs_vsock_nodelay, nodelay);
	kfs_vsock_moved();
	return 0;
}

static int kfs_vsock_nodelay_get(char *buf, size_t size)
{
	return scnprintf(buf, size, "%d\n", kfs_vsock_nodelay);
}

/* "1024,5000"; empty for all ports. Checked whole before it is taken. */
static int kfs_vsock_ports_set(const char *val)
{
	u32 ports[KFS_VSOCK_MAX_PORTS];
	char *copy, *rest, *word;
	unsigned int i, count = 0;
	int err = 0;

	copy = kstrdup(val, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	rest = strim(copy);
	while (*rest && (word = strsep(&rest, ","))) {
		if (count == KFS_VSOCK_MAX_PORTS) {
			err = -E2BIG;
			break;
		}
		err = kstrtou32(word, 0, &ports[count++]);
		if (err || !rest)
			break;
	}
	kfree(copy);
	if (err)
		return err;
	for (i = 0; i < count; i++)
		WRITE_ONCE(kfs_vsock_ports[i], ports[i]);
	WRITE_ONCE(kfs_vsock_port_count, count);
	kfs_vsock_moved();
	return 0;
}

static int kfs_vsock_ports_get(char *buf, size_t size)
{
	unsigned int i, len = 0;

	for (i = 0; i < kfs_vsock_port_count; i++)
		len += scnprintf(buf + len, size - len, "%s%u", i ? "," : "",
				 kfs_vsock_ports[i]);
	return len + scnprintf(buf + len, size - len, "\n");
}

static int kfs_vsock_uint_set(const char *val, unsigned int *to,
			      unsigned int min, unsigned int max)
{
	unsigned int n;
	int err = kstrtouint(val, 0, &n);

	if (err)
		return err;
	if (n < min || n > max)
		return -ERANGE;
	WRITE_ONCE(*to, n);
	return 0;
}

static int kfs_vsock_delay_set(const char *val)
{
	return kfs_vsock_uint_set(val, &kfs_vsock_delay_us, 10, 1000);
}

static int kfs_vsock_delay_get(char *buf, size_t size)
{
	return scnprintf(buf, size, "%u\n", kfs_vsock_delay_us);
}

static int kfs_vsock_max_set(const char *val)
{
	return kfs_vsock_uint_set(val, &kfs_vsock_max_kb, 0, 1 << 22);
}

static int kfs_vsock_max_get(char *buf, size_t size)
{
	return scnprintf(buf, size, "%u\n", kfs_vsock_max_kb);
}

static struct kfs_vsock_stats kfs_vsock_sum(void)
{
	struct kfs_vsock_stats sum = { };
	unsigned int i;
	int cpu;

	/* All fields are u64, so the sum goes over them as an array. */
	for_each_possible_cpu(cpu)
		for (i = 0; i < sizeof(sum) / sizeof(u64); i++)
			((u64 *)&sum)[i] += READ_ONCE(
				((u64 *)per_cpu_ptr(&kfs_vsock_counters, cpu))[i]);
	return sum;
}

static const struct {
	const char *name;
	const char *symbol;
} kfs_vsock_transports[] = {
	{ "vhost_vsock", "vhost_transport_send_pkt" },
	{ "guest", "virtio_transport_send_pkt" },
	{ "loopback", "vsock_loopback_send_pkt" },
};

static int kfs_vsock_stats_get(char *buf, size_t size)
{
	struct kfs_vsock_stats sum = kfs_vsock_sum();
	unsigned int i;
	int len;

	len = scnprintf(buf, size,
			"mode %s\nsockets %d\nmemory_bytes %lld\n"
			"staged_writes %llu\nstaged_bytes %llu\n"
			"packets_saved %llu\nobserved_writes %llu\n"
			"observed_bytes %llu\nobserved_saved %llu\n"
			"no_memory %llu\nlate_pauses %llu\ndropped_bytes %llu\nerrors %llu\n",
			kfs_vsock_modes[READ_ONCE(kfs_vsock_live)],
			atomic_read(&kfs_vsock_sockets),
			(long long)atomic64_read(&kfs_vsock_memory),
			sum.staged_writes, sum.staged_bytes, sum.packets_saved,
			sum.observed_writes, sum.observed_bytes,
			sum.observed_saved, sum.no_memory, sum.late_pauses,
			sum.dropped_bytes, sum.errors);
	for (i = 0; i < KFS_FLUSH_REASONS; i++)
		len += scnprintf(buf + len, size - len, "flush_%s %llu\n",
				 kfs_vsock_reasons[i], sum.flushes[i]);
	for (i = 0; i < ARRAY_SIZE(kfs_vsock_transports); i++)
		len += scnprintf(buf + len, size - len, "transport_%s %s\n",
				 kfs_vsock_transports[i].name,
				 kfs_symbol_lookup(kfs_vsock_transports[i].symbol) ?
				 "loaded" : "missing");
	return len;
}

#define KFS_VSOCK_SETTING(name)						\
static const struct kfs_vsock_setting kfs_vsock_setting_##name = {	\
	.set = kfs_vsock_##name##_set,					\
	.get = kfs_vsock_##name##_get,					\
}

KFS_VSOCK_SETTING(mode);
KFS_VSOCK_SETTING(nodelay);
KFS_VSOCK_SETTING(ports);
KFS_VSOCK_SETTING(delay);
KFS_VSOCK_SETTING(max);
static const struct kfs_vsock_setting kfs_vsock_setting_stats = {
	.get = kfs_vsock_stats_get,
};

static int kfs_vsock_set(const struct kfs_vsock_setting *setting,
			 const char *val)
{
	int err;

	mutex_lock(&kfs_vsock_settings_lock);
	err = setting->set(val);
	mutex_unlock(&kfs_vsock_settings_lock);
	return err;
}

static int kfs_vsock_param_set(const char *val, const struct kernel_param *kp)
{
	return kfs_vsock_set(kp->arg, val);
}

static int kfs_vsock_param_get(char *buf, const struct kernel_param *kp)
{
	const struct kfs_vsock_setting *setting = kp->arg;

	return setting->get(buf, PAGE_SIZE);
}

static const struct kernel_param_ops kfs_vsock_param_ops = {
	.set = kfs_vsock_param_set,
	.get = kfs_vsock_param_get,
};

static const struct kernel_param_ops kfs_vsock_read_ops = {
	.get = kfs_vsock_param_get,
};

#define KFS_VSOCK_PARAM(name, setting)					\
	module_param_cb(name, &kfs_vsock_param_ops,			\
			(void *)&kfs_vsock_setting_##setting, 0644)

KFS_VSOCK_PARAM(mode, mode);
MODULE_PARM_DESC(mode, "off, on, or observe: count what would merge (default off)");
KFS_VSOCK_PARAM(nodelay, nodelay);
MODULE_PARM_DESC(nodelay, "1: only sockets that ask by option NODELAY=0 merge (default 0)");
KFS_VSOCK_PARAM(ports, ports);
MODULE_PARM_DESC(ports, "Local or remote ports that merge, comma separated (default all)");
KFS_VSOCK_PARAM(delay_us, delay);
MODULE_PARM_DESC(delay_us, "Longest wait of a written byte, 10 to 1000 (default 100)");
KFS_VSOCK_PARAM(max_kb, max);
MODULE_PARM_DESC(max_kb, "Memory for all sockets (default 16384)");
module_param_cb(stats, &kfs_vsock_read_ops, (void *)&kfs_vsock_setting_stats,
		0444);
MODULE_PARM_DESC(stats, "Counters, one a line (read only)");

static int kfs_vsock_sysctl(KFS_CTL_CONST struct ctl_table *table, int write,
			    void *buffer, size_t *lenp, loff_t *ppos)
{
	const struct kfs_vsock_setting *setting = table->extra1;
	char text[KFS_VSOCK_MAX_PORTS * 11 + 2] = "";
	struct ctl_table line = { .data = text, .maxlen = sizeof(text) };
	int err;

	if (!write) {
		setting->get(text, sizeof(text));
		strim(text);
	}
	err = proc_dostring(&line, write, buffer, lenp, ppos);
	if (err || !write)
		return err;
	return kfs_vsock_set(setting, strim(text));
}

#define KFS_VSOCK_SYSCTL(name, setting)					\
	{								\
		.procname = name,					\
		.mode = 0644,						\
		.proc_handler = kfs_vsock_sysctl,			\
		.extra1 = (void *)&kfs_vsock_setting_##setting,		\
	}

static struct ctl_table kfs_vsock_sysctl_table[] = {
	KFS_VSOCK_SYSCTL("mode", mode),
	KFS_VSOCK_SYSCTL("nodelay", nodelay),
	KFS_VSOCK_SYSCTL("ports", ports),
	KFS_VSOCK_SYSCTL("delay_us", delay),
	KFS_VSOCK_SYSCTL("max_kb", max),
	KFS_CTL_END
};

static struct ctl_table_header *kfs_vsock_sysctls;

int __init kfs_vsock_settings_init(void)
{
	int err;

	kfs_vsock_sysctls = register_sysctl("net/kvm_fastsys_vsock",
					    kfs_vsock_sysctl_table);
	if (!kfs_vsock_sysctls)
		return -ENOMEM;
	mutex_lock(&kfs_vsock_settings_lock);
	kfs_vsock_ready = true;
	err = kfs_vsock_set_mode(kfs_vsock_wanted);
	mutex_unlock(&kfs_vsock_settings_lock);
	if (err) {
		pr_err("mode=%s cannot go live, see the line above\n",
		       kfs_vsock_modes[kfs_vsock_wanted]);
		kfs_vsock_settings_exit();
	}
	return err;
}

/*
 * Sysctl writers are waited for, but parameters stay writable until we are
 * gone: from here on they are only noted.
 */
void kfs_vsock_settings_exit(void)
{
	unregister_sysctl_table(kfs_vsock_sysctls);
	mutex_lock(&kfs_vsock_settings_lock);
	kfs_vsock_ready = false;
	mutex_unlock(&kfs_vsock_settings_lock);
}
