package vm_test

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/vm"
)

// TestWhoWrites has kernels print who writes lists of CPUs, by the commands of docs/monitoring.md.
func TestWhoWrites(t *testing.T) {
	for name, g := range map[string]vm.Guest{"6.1 v2": {}, "6.1 v1": {CgroupV1: true}, "6.12 v2": {Kernel: "6.12"}} {
		t.Run(name, func(t *testing.T) {
			m := vm.Start(t, g)
			dir := "/sys/fs/cgroup"
			if g.CgroupV1 {
				dir += "/cpuset"
			}
			m.Run("mkdir", dir+"/a")
			m.Sh("mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing")
			got := m.Sh("cd /sys/kernel/tracing\n" +
				"echo 'p:cpusets cpuset_write_resmask' >kprobe_events && echo 1 >events/kprobes/cpusets/enable\n" +
				"dd of=" + dir + "/a/cpuset.cpus status=none <<END\n1-2\nEND\n" +
				"cat trace\n" +
				"echo 0 >events/kprobes/cpusets/enable; echo >kprobe_events")
			if !strings.Contains(got, " dd-") {
				t.Errorf("the program is not named: %s", got)
			}
		})
	}
}
