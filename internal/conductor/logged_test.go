package conductor_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestProblemsLoggedOnce: the log has a problem of a container once, although the container is decided at its creation,
// its start and its update, and created anew after a crash. Another pod with the same problem is named, too.
func TestProblemsLoggedOnce(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V2, faults{})
	var log bytes.Buffer
	mo.log = &log
	mo.restart()
	logged := func(pod string) (n int) {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "msg=\"the agent found a problem when it handled an event\"") && strings.Contains(line, "pod="+pod+" ") {
				n++
			}
		}
		return n
	}
	first := mo.runPod("LSR", "99", "") // the machine has no such CPU
	c := mo.create(first, "a")
	once := logged(first.Name)
	if once == 0 {
		t.Fatalf("nothing is logged of CPUs that do not exist:\n%s", &log)
	}
	mo.start(c)
	r := c.Resources
	r.CPU.Shares = lifecycle.Some(uint64(512))
	mo.update(c, r)
	mo.stop(c)
	mo.start(mo.create(first, "a"))
	if n := logged(first.Name); n != once {
		t.Errorf("%d problems are logged, want %d:\n%s", n, once, &log)
	}
	second := mo.runPod("LSR", "99", "")
	mo.create(second, "a")
	if logged(second.Name) == 0 {
		t.Errorf("the second pod is not named:\n%s", &log)
	}
}
