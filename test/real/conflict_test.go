package real_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/test/real"
)

// TestConflict: a second plugin sets the field that the agent sets, so containerd fails the creation. The third creation
// succeeds, because the agent no longer sets the field. Status, explain, events and doctor name field and cure.
func TestConflict(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	other := newPlugin(t)
	other.create = func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		adjust := &api.ContainerAdjustment{}
		adjust.SetLinuxCPUSetCPUs("0")
		return adjust, nil, nil
	}
	other.connect(c.NRISocket(), "greedy", "99")
	pod := c.RunPod(owning("db", "1"))
	spec := real.ContainerSpec{Name: "db", Resources: oneCPU}
	for i := range 2 {
		if _, err := c.TryCreateContainer(pod, spec); err == nil || !strings.Contains(err.Error(), "greedy") {
			t.Fatalf("creation %d: %v, want containerd's error that names the other plugin", i, err)
		}
	}
	c.RunContainer(pod, spec)
	real.Eventually(t, patiently, func() error {
		found, err := a.explained("shop", "db", "db")
		if err != nil || len(found) != 1 || len(found[0].Problems) == 0 {
			return fmt.Errorf("%+v, %w", found, err)
		}
		if p := found[0].Problems[0]; p.Key != "nri.cede" || p.Value != "cpuset.cpus" || !strings.Contains(p.Reason, "2 creations of this container failed") ||
			!strings.Contains(p.Reason, "another NRI plugin sets cpuset.cpus, too") {
			return fmt.Errorf("the trace is %+v", p)
		}
		return nil
	})
	for _, command := range []string{"status", "explain shop/db", "events --follow=false", "doctor"} {
		args := append(strings.Fields(command), "--config", a.config())
		out, _ := exec.CommandContext(t.Context(), a.path, args...).CombinedOutput() // doctor ends with 1
		t.Logf("trimtab %s\n%s", command, out)
		wants := []string{"nri.cede", "cpuset.cpus"}
		if command == "status" {
			wants = []string{"1 problem"}
		}
		for _, want := range wants {
			if !strings.Contains(string(out), want) {
				t.Errorf("trimtab %s does not say %q:\n%s", command, want, out)
			}
		}
	}
}
