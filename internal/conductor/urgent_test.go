package conductor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestOwnerAnswerIsUrgent creates an owner on a node with many shared containers. With a
// partition the answer waits for three files, however many containers there are; their lists
// are written afterwards. If the kernel refuses the partition, or there is none, all lists are
// written before the answer.
func TestOwnerAnswerIsUrgent(t *testing.T) {
	t.Parallel()
	const crowd = 20
	for _, c := range []struct {
		name             string
		refused, without bool
		before, after    int // lists written before the answer, and after it
		parts            int // files of partitions written before the answer
	}{
		{name: "with a partition", after: crowd, parts: 3},
		{name: "refused", refused: true, before: crowd, parts: 4}, // the CPUs of both cgroups, and back
		{name: "without", without: true, before: crowd},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mo := newModel(t, cgroup.V2, faults{})
			mo.journal = &memory{}
			if c.without {
				must(mo.kernel.SetRelease("6.12"))
				must(mo.kernel.MkdirRunc(outside))
			} else {
				parted(mo)
			}
			var shares []*modelCtr
			for range crowd {
				ctr := mo.create(mo.runPod("LS", "", ""), "a")
				mo.start(ctr)
				shares = append(shares, ctr)
			}
			owner := mo.runPod("LSE", "2-3", "")
			if c.refused {
				mo.kernel.FailWrites(func(path, value string) error {
					if strings.HasSuffix(path, "cpuset.cpus.partition") && value == "root" {
						return errors.New("no")
					}
					return nil
				})
			}
			lists, parts := 0, 0
			mo.kernel.OnWrite(func(path, _ string) {
				mo.checkExclusive("at a write")
				if strings.HasSuffix(path, "/cpuset.cpus") {
					lists++
				}
				if strings.HasSuffix(path, "/cpuset.cpus.exclusive") || strings.HasSuffix(path, "/cpuset.cpus.partition") {
					parts++
				}
			})
			ctr := &lifecycle.Container{ID: "own", PodID: owner.ID, Name: "a", State: lifecycle.StateCreated, CgroupsPath: owner.CgroupParent + "/own"}
			ans, err := mo.con.Handle(t.Context(), mo.from, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&owner.Pod), Container: ctr})
			if err != nil || len(ans.Values) == 0 {
				t.Fatalf("the owner: %+v, %v", ans, err)
			}
			if parts != c.parts {
				t.Errorf("%d files of partitions were written before the answer, want %d", parts, c.parts)
			}
			before := lists
			for _, s := range shares {
				if got := mo.effective(s); got != "0-1,4-7" {
					t.Errorf("at the answer %s may use %s", s.ID, got)
				}
			}
			mo.con.Flush()
			if after := lists - before; before != c.before || after != c.after {
				t.Errorf("%d lists were written before the answer and %d after it, want %d and %d", before, after, c.before, c.after)
			}
			for _, s := range shares {
				if got := mo.file(s.dir() + "/cpuset.cpus"); got != "0-1,4-7" {
					t.Errorf("in the end %s has %s", s.ID, got)
				}
			}
			for _, s := range shares {
				mo.checkValues(s)
			}
			for _, b := range mo.broken {
				t.Error(b)
			}
		})
	}
}
