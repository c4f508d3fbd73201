package real_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// leftTask reports whether containerd cannot remove a container because of containerd's issue 11037, which TestCutStart
// shows without Trimtab. If StartContainer is cancelled after containerd has made the task and before it has read the
// task's pid, containerd marks the container as exited and keeps the task. It then cannot remove the container until it
// restarts (2.4.2 has the fault). The error must name this container, and its status that moment.
func leftTask(c *real.Containerd, id real.ContainerID, err error) bool {
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot delete running task %s: failed precondition", id)) {
		return false
	}
	s, err := containerStatus(c, id)
	return err == nil && s.State == cri.ContainerState_CONTAINER_EXITED && s.Reason == "StartError" &&
		strings.HasPrefix(s.Message, "failed to create containerd task: failed to get task pid: context ")
}

// restartRuntime restarts containerd, which deletes such tasks, and waits until the agent is attached again.
func (a *trimtab) restartRuntime(c *real.Containerd) {
	a.t.Helper()
	c.Restart()
	answers(a.t, c)
	a.attached()
}

// TestCutStart cancels StartContainer calls to containerd, without a proxy, at random moments. Each pod can be removed,
// at once or, if containerd left the task, after a restart. TRIMTAB_SOAK=300 shows some three of these.
func TestCutStart(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	whole := c.CreateContainer(c.RunPod(plain("whole", "")), real.ContainerSpec{Name: "app"})
	began := time.Now()
	c.StartContainer(whole)
	took := time.Since(began)
	codes, left := map[string]int{}, 0
	for i := range rounds(t, 20) {
		pod := c.RunPod(plain(fmt.Sprint("cut-", i), ""))
		id := c.CreateContainer(pod, real.ContainerSpec{Name: "app"})
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(took))
		_, err := c.Direct().StartContainer(ctx, &cri.StartContainerRequest{ContainerId: string(id)})
		cancel()
		codes[code(err)]++
		real.Eventually(t, patiently, func() error {
			err := c.TryRemovePod(pod)
			if leftTask(c, id, err) {
				left++
				c.Restart()
			}
			return err
		})
	}
	t.Logf("starts, cut within %v: %v; containerd left the task of %d", took.Round(time.Millisecond), codes, left)
}
