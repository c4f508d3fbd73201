package real_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/test/real"
)

// cdiDevice is a device of a CDI spec that is written for containerd. It sets a variable.
const cdiDevice = "trimtab.example/thing=one"

const cdiSpec = `{"cdiVersion": "0.6.0", "kind": "trimtab.example/thing",
 "devices": [{"name": "one", "containerEdits": {"env": ["FROM_CDI=yes"]}}]}`

// everyField has a row for each field of NRI 0.12's adjustment of a container, and for each removal.
func everyField(t *testing.T, c *real.Containerd) []fieldRow {
	t.Helper()
	cdi := filepath.Join(filepath.Dir(c.Socket()), "cdi")
	if err := os.MkdirAll(cdi, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cdi, "thing.json"), []byte(cdiSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	var rows []fieldRow
	for _, some := range [][]fieldRow{plainRows(), mountRows(), hookRows(), deviceRows(), processRows(), linuxRows(namespace(t)), cpuRows(), memoryRows(), resourceRows()} {
		rows = append(rows, some...)
	}
	return rows
}

// namespace returns the path of an IPC namespace that exists as long as the test.
func namespace(t *testing.T) string {
	t.Helper()
	holder := exec.Command("sleep", "1000")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	return fmt.Sprintf("/proc/%d/ns/ipc", holder.Process.Pid)
}

func plainRows() []fieldRow {
	return []fieldRow{
		{"annotations", func(s *setting) { s.AddAnnotation("plugin.example/new", "yes") }, annotation("plugin.example/new"), "yes"},
		{"annotations, removed", func(s *setting) { s.RemoveAnnotation("plugin.example/old") }, annotation("plugin.example/old"), "not set"},
		{"env", func(s *setting) { s.AddEnv("NEW", "yes") }, variable("NEW"), "yes"},
		{"env, replaced", func(s *setting) { s.RemoveEnv("OLD"); s.AddEnv("OLD", "yes") }, variable("OLD"), "yes"},
		{"env, removed", func(s *setting) { s.RemoveEnv("OLD") }, variable("OLD"), "not set"},
		{"args", func(s *setting) { s.SetArgs(append(s.about.GetArgs(), "sleep", "by a plugin")) },
			func(a *adjusted) string {
				return fmt.Sprint(strings.HasSuffix(a.file(a.proc("cmdline")), "by a plugin\x00"))
			}, "true"},
		{"CDI_devices", func(s *setting) { s.AddCDIDevice(&api.CDIDevice{Name: cdiDevice}) }, variable("FROM_CDI"), "yes"},
	}
}

func mountRows() []fieldRow {
	mount := func(kind, source string, options ...string) func(*setting) {
		return func(s *setting) {
			if source == "" {
				source = s.dir
			}
			s.AddMount(&api.Mount{Destination: "/from-plugin", Type: kind, Source: source, Options: options})
		}
	}
	return []fieldRow{
		{"mounts, bind", mount("bind", "", "rbind", "ro", "nosuid", "nodev", "noexec"), func(a *adjusted) string {
			_, options, _ := strings.Cut(mounted("/from-plugin")(a), " ")
			return options
		}, "ro,nosuid,nodev,noexec,relatime"},
		{"mounts, tmpfs", mount("tmpfs", "tmpfs", "nosuid", "size=1m"), mounted("/from-plugin"), "tmpfs rw,nosuid,relatime"},
		{"mounts, removed", func(s *setting) { s.RemoveMount("/dev/mqueue") }, mounted("/dev/mqueue"), "not mounted"},
	}
}

// hookRows are the hooks that run on the host. Hooks of createContainer and startContainer run programs of
// the container.
func hookRows() []fieldRow {
	hook := func(s *setting, stage string) []*api.Hook {
		return []*api.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", fmt.Sprintf("cat >/dev/null; echo %s > %s/hooked", stage, s.dir)}}}
	}
	return []fieldRow{
		{"hooks.prestart", func(s *setting) { s.AddHooks(&api.Hooks{Prestart: hook(s, "prestart")}) }, hooked, "prestart"},
		{"hooks.create_runtime", func(s *setting) { s.AddHooks(&api.Hooks{CreateRuntime: hook(s, "createRuntime")}) }, hooked, "createRuntime"},
		{"hooks.create_container", func(s *setting) { s.AddHooks(&api.Hooks{CreateContainer: hook(s, "createContainer")}) }, hooked, "createContainer"},
		{"hooks.poststart", func(s *setting) { s.AddHooks(&api.Hooks{Poststart: hook(s, "poststart")}) }, hooked, "poststart"},
		{"hooks.poststop", func(s *setting) { s.AddHooks(&api.Hooks{Poststop: hook(s, "poststop")}) }, func(a *adjusted) string {
			a.c.StopContainer(a.id)
			return hooked(a)
		}, "poststop"},
	}
}

func deviceRows() []fieldRow {
	return []fieldRow{
		{"linux.devices", func(s *setting) {
			s.AddDevice(&api.LinuxDevice{Path: "/dev/plugin-null", Type: "c", Major: 1, Minor: 3, FileMode: api.FileMode(uint32(0o640)), Uid: api.UInt32(uint32(12)), Gid: api.UInt32(uint32(34))})
		}, device("/dev/plugin-null"), "20640 1:3 12:34"},
		{"linux.devices, removed", func(s *setting) { s.RemoveDevice("/dev/old") }, device("/dev/old"), "no such file or directory"},
		{"linux.resources.devices", func(s *setting) {
			s.Linux = &api.LinuxContainerAdjustment{Resources: &api.LinuxResources{Devices: []*api.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: api.Int64(10), Minor: api.Int64(229), Access: "rw"}}}}
		}, func(a *adjusted) string {
			return fmt.Sprint(strings.Contains(kernel("devices.list")(a), "c 10:229 rw"))
		}, "true"},
	}
}

func processRows() []fieldRow {
	return []fieldRow{
		{"rlimits", func(s *setting) { s.AddRlimit("RLIMIT_CORE", 512, 256) }, limit("Max core file size"), "256 512"},
		{"linux.oom_score_adj", func(s *setting) { s.SetLinuxOomScoreAdj(ptr(321)) }, func(a *adjusted) string { return a.file(a.proc("oom_score_adj")) }, "321"},
		{"linux.io_priority", func(s *setting) {
			s.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_BE, Priority: 6})
		},
			told("ionice", "-p", "PID"), "best-effort: prio 6"},
		{"linux.scheduler", func(s *setting) {
			s.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_BATCH, Nice: 5})
		},
			told("ps", "-o", "cls=,ni=", "-p", "PID"), "B 5"},
		{"linux.memory_policy", func(s *setting) { s.SetLinuxMemoryPolicy(api.MpolMode_MPOL_BIND, "0") },
			func(a *adjusted) string { return fmt.Sprint(strings.Contains(a.file(a.proc("numa_maps")), " bind:0")) }, "true"},
		{"linux.seccomp_policy", func(s *setting) {
			s.SetLinuxSeccompPolicy(&api.LinuxSeccomp{DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []*api.LinuxSyscall{{Names: []string{"swapon"}, Action: "SCMP_ACT_ERRNO"}}})
		}, func(a *adjusted) string {
			_, rest, _ := strings.Cut(a.file(a.proc("status")), "\nSeccomp:")
			mode, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
			return mode
		}, "2"},
	}
}

// linuxRows use an IPC namespace to join.
func linuxRows(ipc string) []fieldRow {
	return []fieldRow{
		{"linux.namespaces", func(s *setting) { s.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "ipc", Path: ipc}) },
			func(a *adjusted) string {
				theirs, _ := os.Stat(a.proc("ns/ipc"))
				ours, _ := os.Stat(ipc)
				return fmt.Sprint(os.SameFile(theirs, ours))
			}, "true"},
		{"linux.sysctl", func(s *setting) { s.SetLinuxSysctl("fs.mqueue.msg_max", "77") }, told("nsenter", "-t", "PID", "-i", "cat", "/proc/sys/fs/mqueue/msg_max"), "77"},
		{"linux.net_devices", func(s *setting) { s.AddLinuxNetDevice("trimtab-none", &api.LinuxNetDevice{Name: "eth7"}) },
			func(*adjusted) string { return "started without the interface" }, "moved"},
		{"linux.rdt", func(s *setting) { s.SetLinuxRDTClosID("trimtab-test") }, func(*adjusted) string { return "started without the group" }, "joined"},
		{"linux.cgroups_path", func(s *setting) { s.SetLinuxCgroupsPath(s.about.GetLinux().GetCgroupsPath() + "-moved") },
			func(a *adjusted) string { return fmt.Sprint(strings.HasSuffix(a.c.CgroupDirs(a.id)["cpu"], "-moved")) }, "true"},
	}
}

func cpuRows() []fieldRow {
	return []fieldRow{
		{"linux.resources.cpu.shares", func(s *setting) { s.SetLinuxCPUShares(512) }, kernel("cpu.shares"), "512"},
		{"linux.resources.cpu.quota", func(s *setting) { s.SetLinuxCPUQuota(70000) }, kernel("cpu.cfs_quota_us"), "70000"},
		{"linux.resources.cpu.period", func(s *setting) { s.SetLinuxCPUPeriod(50000) }, kernel("cpu.cfs_period_us"), "50000"},
		{"linux.resources.cpu.cpus", func(s *setting) { s.SetLinuxCPUSetCPUs("0") }, kernel("cpuset.cpus"), "0"},
		{"linux.resources.cpu.mems", func(s *setting) { s.SetLinuxCPUSetMems("0") }, kernel("cpuset.mems"), "0"},
		{"linux.resources.cpu.realtime_runtime", func(s *setting) { s.SetLinuxCPURealtimeRuntime(1000) }, kernel("cpu.rt_runtime_us"), "1000"},
		{"linux.resources.cpu.realtime_period", func(s *setting) { s.SetLinuxCPURealtimePeriod(500000) }, kernel("cpu.rt_period_us"), "500000"},
	}
}

func memoryRows() []fieldRow {
	const mib = 1 << 20
	return []fieldRow{
		{"linux.resources.memory.limit", func(s *setting) { s.SetLinuxMemoryLimit(96 * mib) }, kernel("memory.limit_in_bytes"), fmt.Sprint(96 * mib)},
		{"linux.resources.memory.reservation", func(s *setting) { s.SetLinuxMemoryReservation(32 * mib) }, kernel("memory.soft_limit_in_bytes"), fmt.Sprint(32 * mib)},
		{"linux.resources.memory.swap", func(s *setting) { s.SetLinuxMemoryLimit(96 * mib); s.SetLinuxMemorySwap(128 * mib) },
			kernel("memory.memsw.limit_in_bytes"), fmt.Sprint(128 * mib)},
		{"linux.resources.memory.swappiness", func(s *setting) { s.SetLinuxMemorySwappiness(17) }, kernel("memory.swappiness"), "17"},
		{"linux.resources.memory.disable_oom_killer", func(s *setting) { s.SetLinuxMemoryDisableOomKiller() },
			func(a *adjusted) string {
				return fmt.Sprint(strings.Contains(kernel("memory.oom_control")(a), "oom_kill_disable 1"))
			}, "true"},
		{"linux.resources.memory.use_hierarchy", func(s *setting) { s.SetLinuxMemoryUseHierarchy() }, kernel("memory.use_hierarchy"), "1"},
		{"linux.resources.memory.kernel", func(s *setting) { s.SetLinuxMemoryKernel(64 * mib) }, kernel("memory.kmem.limit_in_bytes"), fmt.Sprint(64 * mib)},
		{"linux.resources.memory.kernel_tcp", func(s *setting) { s.SetLinuxMemoryKernelTCP(8 * mib) }, kernel("memory.kmem.tcp.limit_in_bytes"), fmt.Sprint(8 * mib)},
	}
}

func resourceRows() []fieldRow {
	return []fieldRow{
		{"linux.resources.pids", func(s *setting) { s.SetLinuxPidLimits(77) }, kernel("pids.max"), "77"},
		{"linux.resources.hugepage_limits", func(s *setting) { s.AddLinuxHugepageLimit("2MB", 4<<20) }, kernel("hugetlb.2MB.limit_in_bytes"), fmt.Sprint(4 << 20)},
		{"linux.resources.unified", func(s *setting) { s.AddLinuxUnified("pids.max", "66") }, kernel("pids.max"), "66"},
		{"linux.resources.blockio_class", func(s *setting) { s.SetLinuxBlockIOClass("fast") }, func(*adjusted) string { return "started" }, "of the class"},
		{"linux.resources.rdt_class", func(s *setting) { s.SetLinuxRDTClass("gold") }, func(*adjusted) string { return "started" }, "of the class"},
	}
}
