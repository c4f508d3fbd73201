package real_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// TestLaunchedByContainerd lets containerd start the agent as a pre-installed plugin, with a drop-in. The plugin is a
// script that makes the agent use directories of this test, which a drop-in cannot set.
func TestLaunchedByContainerd(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	a.kill()
	c.Stop()
	dir := filepath.Dir(c.NRISocket())
	script := fmt.Sprintf("#!/bin/sh\nexec %s agent --config %s >>%s/launched.log 2>&1\n", a.path, a.config(), a.dir)
	dropIn := string(a.text(c, `pools: {shared: "0"}`))
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "nri/plugins/10-trimtab"), []byte(script), 0o755),
		os.WriteFile(filepath.Join(dir, "nri/conf.d/10-trimtab.conf"), []byte(dropIn), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	c.StartAgain()
	a.attached()
	defer func() {
		if text, _ := os.ReadFile(filepath.Join(a.dir, "launched.log")); t.Failed() {
			t.Logf("output of the launched agent:\n%s", text)
		}
	}()
	service := c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"})
	same(t, "affinity by the drop-in's pool", c.FirstView(service).Affinity, "0")
	silent := c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "silent"})
	same(t, "affinity of a pod without requests", c.FirstView(silent).Affinity, "0-1")
	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	checkOwner(t, c, ownerPod, owner)
	named{"silent": silent, "service": service}.on(t, c, "beside an owner", "cpuset.cpus", "0")

	c.Restart() // which restarts the agent, too
	a.attached()
	named{"silent": silent, "service": service}.on(t, c, "after a restart", "cpuset.cpus", "0")
	same(t, "CPUs of the owner after a restart", c.KernelFile(owner, "cpuset.cpus"), "1")
	if n, err := a.status(); err != nil || len(n.CPUs.Grants) != 1 {
		t.Errorf("grants after a restart: %+v, %v", n.CPUs.Grants, err)
	}

	// The agent ends with its runtime. It must end before the test removes its directory, or it would make that again.
	c.Stop()
	real.Eventually(t, patiently, func() error {
		if _, err := a.status(); err == nil {
			return errors.New("the launched agent outlives its runtime")
		}
		return nil
	})
	if err := os.Remove(filepath.Join(dir, "nri/plugins/10-trimtab")); err != nil {
		t.Fatal(err)
	}
	c.StartAgain() // for the cleanup
}
