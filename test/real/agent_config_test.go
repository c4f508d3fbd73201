package real_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// mount replaces the configuration like the kubelet in a ConfigMap volume: the file is a link through ..data, and
// ..data is replaced.
func (a *trimtab) mount(c *real.Containerd, config string) {
	a.t.Helper()
	at := func(name string) string { return filepath.Join(a.dir, name) }
	version, err := os.MkdirTemp(a.dir, "..version-")
	if err != nil {
		a.t.Fatal(err)
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(version, "config.yaml"), a.text(c, config), 0o600),
		os.Symlink(filepath.Base(version), at("..data.new")), os.Rename(at("..data.new"), at("..data")),
	)
	if to, _ := os.Readlink(a.config()); to == "" {
		err = errors.Join(err, os.Symlink("..data/config.yaml", at("new")), os.Rename(at("new"), a.config()))
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// awaitConfigError waits until the status reports these errors of the newest configuration; "" means that it is in
// force.
func (a *trimtab) awaitConfigError(wants ...string) {
	a.t.Helper()
	real.Eventually(a.t, patiently, func() error {
		n, err := a.status()
		if err != nil {
			return err
		}
		if len(wants) == 0 && n.ConfigError != "" {
			return fmt.Errorf("the status reports %q", n.ConfigError)
		}
		for _, want := range wants {
			if !strings.Contains(n.ConfigError, want) {
				return fmt.Errorf("the status reports %q for the configuration, want %q", n.ConfigError, want)
			}
		}
		return nil
	})
}

// TestConfigMap replaces configurations by links while containers run. Without a restart each is in force in the
// kernel, and an invalid one leaves the previous one in force.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	batch := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"batch":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`,
	}})
	all := named{
		"batch":   c.RunContainer(batch, real.ContainerSpec{Name: "batch", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000, MemoryLimitInBytes: 128 << 20}}),
		"service": c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"}),
		"silent":  c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "silent"}),
	}
	pids := map[string]int{}
	for name, id := range all {
		pids[name] = c.ContainerPID(id)
	}
	cpus := func(batch, service, silent string) {
		t.Helper()
		all.become(t, c, "cpuset.cpus", map[string]string{"batch": batch, "service": service, "silent": silent})
	}
	of := func(shares, quota, memory string) {
		t.Helper()
		for file, want := range map[string]string{"cpu.shares": shares, "cpu.cfs_quota_us": quota, "memory.limit_in_bytes": memory} {
			all.become(t, c, file, map[string]string{"batch": want})
		}
	}
	cpus("0-1", "0-1", "0-1")
	of("512", "50000", fmt.Sprint(64<<20))
	same(t, "quota of the pod", c.PodKernelFile(batch, "cpu.cfs_quota_us"), "50000")

	a.mount(c, `pools: {reserved: "0"}`)
	cpus("1", "1", "0-1")
	a.mount(c, `pools: {shared: "0", reclaimed: "1"}`)
	cpus("1", "0", "0-1")
	a.mount(c, "pools: {shared: \"0\"}\nhooks: {cpuset: {unlabelled: shared}}")
	cpus("0-1", "0", "0")
	a.awaitConfigError()

	a.mount(c, `hooks: {batch: {enabled: false}}`)
	of("2", "-1", fmt.Sprint(128<<20))
	cpus("0-1", "0-1", "0-1")
	real.Eventually(t, patiently, func() error {
		if got := c.PodKernelFile(batch, "cpu.cfs_quota_us"); got != "-1" {
			return fmt.Errorf("quota of the pod is %s with the hook off", got)
		}
		return nil
	})
	for bad, says := range map[string][]string{
		"hooks: {batch: {enabeld: true}}":  {"enabeld", "enabled", "config.yaml:"},
		"hooks: {batch: {enabled: maybe}}": {"enabled", "config.yaml:"},
		"pools: {shared: 7-9}":             {"pools.shared"},
		"pools: [":                         {"config.yaml:", "not YAML"},
	} {
		a.mount(c, bad)
		a.awaitConfigError(says...)
		of("2", "-1", fmt.Sprint(128<<20))
	}
	a.mount(c, "")
	of("512", "50000", fmt.Sprint(64<<20))
	a.awaitConfigError()
	for name, id := range all {
		same(t, "process of "+name, c.ContainerPID(id), pids[name])
	}
	// The runtime's copy is updated, too: an update without CPUs does not restore the old ones.
	c.UpdateResources(all["batch"], &cri.LinuxContainerResources{OomScoreAdj: 1000, CpuPeriod: 100_000})
	of("512", "50000", fmt.Sprint(64<<20))
}

// TestOwnersUnderReload switches the cpuset hook off and on, and reserves an owned CPU. Owners keep their CPUs if a
// change does not concern them. An owner that loses its CPUs gets them back when the change is undone. After each
// change a restart of the agent moves nothing.
func TestOwnersUnderReload(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	all := named{
		"silent": c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "silent"}),
		"db":     c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU}),
	}
	cpus := func(when, db, quota, silent string) {
		t.Helper()
		t.Log(when)
		all.become(t, c, "cpuset.cpus", map[string]string{"db": db, "silent": silent})
		all.become(t, c, "cpu.cfs_quota_us", map[string]string{"db": quota})
	}
	restart := func() {
		t.Helper()
		before := snapshot(c, all)
		a.kill()
		a.run()
		a.attached()
		same(t, "after a restart of the agent", fmt.Sprint(snapshot(c, all)), fmt.Sprint(before))
	}
	cpus("at first", "1", "-1", "0")
	a.mount(c, `pools: {shared: "0"}`)
	a.generation(2)
	cpus("another pool", "1", "-1", "0")
	a.mount(c, `hooks: {cpuset: {unsetQuota: false}}`)
	cpus("quota kept", "1", "100000", "0")
	restart()
	a.mount(c, "")
	cpus("as at first", "1", "-1", "0")
	a.mount(c, `hooks: {cpuset: {enabled: false}}`)
	cpus("hook off", "0-1", "100000", "0-1")
	restart()
	a.mount(c, "")
	cpus("hook on again", "1", "-1", "0")
	restart()
	a.mount(c, `pools: {reserved: "1"}`)
	cpus("its CPU reserved", "0", "100000", "0-1")
	restart()
	a.mount(c, "")
	cpus("and no more", "1", "-1", "0")
	restart()
}

// generation waits until the agent has applied at least n configurations since its start.
func (a *trimtab) generation(n int) {
	a.t.Helper()
	real.Eventually(a.t, patiently, func() error {
		s, err := a.status()
		if err == nil && s.ConfigGen < n {
			err = fmt.Errorf("configuration generation %d, want %d", s.ConfigGen, n)
		}
		return err
	})
}
