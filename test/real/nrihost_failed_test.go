package real_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestHostedFailedContainer has plugins follow containers that fail: one whose program ends with an error, and one whose
// program does not exist, so that the runtime cannot start it. Plugins hear of each end once, with the exit code, and of
// a stop before the removal. containerd 2.4 asks plugins about a start only after it has found the program, and reports
// the state of a failed start as unknown.
func TestHostedFailedContainer(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, _ string, c *real.Containerd, socket string) {
		t.Helper()
		p := newPlugin(t).connect(socket, "failures", "10")
		pod := c.RunPod(plain("p", ""))

		ends := c.RunContainer(pod, real.ContainerSpec{Name: "ends", Args: []string{"exit", "3"}})
		same(t, "exit code", c.WaitExit(ends), 3)
		real.Eventually(t, patiently, func() error {
			if p.seen("StopContainer", "ends") == nil {
				return fmt.Errorf("events are %v", p.of("ends"))
			}
			return nil
		})
		if k := p.seen("StopContainer", "ends"); k.GetState() != api.ContainerState_CONTAINER_STOPPED || k.GetExitCode() != 3 || k.GetFinishedAt() == 0 {
			t.Errorf("at its stop the container has state %s, exit code %d, end %d", k.GetState(), k.GetExitCode(), k.GetFinishedAt())
		}
		c.RemoveContainer(ends)
		begins := []string{"CreateContainer ends", "PostCreateContainer ends", "StartContainer ends"}
		p.becomesEither(t, append(begins[:3:3], "PostStartContainer ends", "StopContainer ends", "RemoveContainer ends"),
			append(begins[:3:3], "StopContainer ends", "PostStartContainer ends", "RemoveContainer ends"), "ends")

		r := c.CreateRequest(pod, real.ContainerSpec{Name: "absent"})
		r.Config.Command = []string{"/there/is/no/such/program"}
		created, err := c.CRI().CreateContainer(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		id := created.GetContainerId()
		if _, err := c.CRI().StartContainer(context.Background(), &cri.StartContainerRequest{ContainerId: id}); err == nil {
			t.Fatal("a program that does not exist was started")
		}
		if _, err := c.CRI().RemoveContainer(context.Background(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		events := slices.DeleteFunc(p.of("absent"), func(e string) bool { return e == "StartContainer absent" })
		same(t, "events", fmt.Sprint(events), "[CreateContainer absent PostCreateContainer absent StopContainer absent RemoveContainer absent]")
		if k := p.seen("StopContainer", "absent"); k.GetExitCode() == 0 || k.GetFinishedAt() == 0 {
			t.Errorf("at its stop the container that did not start has exit code %d, end %d", k.GetExitCode(), k.GetFinishedAt())
		}
		if again := c.RunContainer(pod, real.ContainerSpec{Name: "absent"}); string(again) == id || p.seen("PostStartContainer", "absent").GetId() != string(again) {
			t.Errorf("the repetition %s has the id of the failed container %s, or plugins did not hear of its start", again, id)
		}
	})
}
