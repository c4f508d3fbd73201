package agent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// bare is a configuration without files and sockets.
func bare() config.Config {
	c := config.Default()
	c.NRI.Enabled, c.Paths.Key, c.Paths.State, c.Paths.StatusSocket = false, "", "", ""
	return c
}

// unattached returns an agent on a node where no container was started, and the node's kernel.
func unattached(t *testing.T, c config.Config, v cgroup.Version, host *lifecycle.Host) (*Agent, *kernel.Cgroups) {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(v, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Config: c, Machine: m, Tree: &cgroup.Tree{FS: kernel, Version: v}, Host: host})
	if err != nil {
		t.Fatal(err)
	}
	return a, kernel
}

// TestHooksHere checks what an agent reports about its hooks: on a node where no container was started some
// answers are unknown, and afterwards all are known.
func TestHooksHere(t *testing.T) {
	c := bare()
	c.Hooks.GroupIdentity.Enabled, c.Hooks.RDMA.Enabled = true, true
	host := &lifecycle.Host{Devices: map[string]lifecycle.Device{"/dev/infiniband/uverbs0": {}, "/dev/nvidiactl": {}}}
	a, kernel := unattached(t, c, cgroup.V2, host)
	expect := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for _, h := range a.Source().Status().Hooks {
			got[h.Name] = h.Effective()
			if h.Name == "oomScore" && h.Enabled || h.Name == "rdma" && !h.Enabled {
				t.Errorf("%s: enabled is %v", h.Name, h.Enabled)
			}
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s is %q, want %q", name, got[name], text)
			}
		}
	}
	expect(map[string]string{
		"cpuset": "effective", "rdma": "effective", "gpu": "effective",
		"groupIdentity": "unknown: no cgroup with the controller cpu exists yet",
	})
	if !a.settings.waitsForProbe() {
		t.Error("what is unknown is not looked at again")
	}
	if err := kernel.MkdirRunc("kubepods"); err != nil {
		t.Fatal(err)
	}
	expect(map[string]string{"groupIdentity": "not effective: the kernel has no cpu.bvt_warp_ns; " +
		"hooks.groupIdentity.fallback: idle uses cpu.idle instead"})
	if a.settings.waitsForProbe() {
		t.Error("what is known is looked at again")
	}
	c.Hooks.GroupIdentity.Fallback = "idle"
	if err := a.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
	expect(map[string]string{"groupIdentity": "effective"})
	c.Hooks.GPU.Devices = "nodes"
	if err := a.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
	expect(map[string]string{"gpu": "not effective: there is no /dev/nvidia*"})
}

// TestFallbackWaits: the file of a fallback may exist already, as in the root of version 1, without the
// feature itself being missing.
func TestFallbackWaits(t *testing.T) {
	c := bare()
	c.Hooks.GroupIdentity.Enabled, c.Hooks.GroupIdentity.Fallback = true, "idle"
	a, kernel := unattached(t, c, cgroup.V1, nil)
	if f := a.node.Probe("cpu.idle"); f.Support != lifecycle.Supported {
		t.Fatalf("version 1's root does not tell of cpu.idle: %v", f)
	}
	if !a.settings.waitsForProbe() {
		t.Error("whether the kernel has group identities is not looked at again")
	}
	if err := kernel.MkdirRunc("kubepods"); err != nil {
		t.Fatal(err)
	}
	if a.settings.waitsForProbe() {
		t.Error("what is known is looked at again")
	}
}
