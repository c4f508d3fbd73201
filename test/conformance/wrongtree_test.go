package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// missingCgroup waits until status, readiness and explain report that a pod's container runs without a cgroup.
func (r *attachedAgent) missingCgroup(pod scenario.Ref) {
	r.s.t.Helper()
	r.s.await(fmt.Sprintf("%s reports that %s has no cgroup", r.name, pod), func() error {
		n := r.agent.Source().Status()
		namespace, name, _ := strings.Cut(string(pod), "/")
		found, _ := r.agent.Source().Explain(namespace, name, "a")
		reported := map[string]string{
			"status": fmt.Sprint(n.WithoutCgroup), "readyz": fmt.Sprint(r.agent.Ready()), "explain": fmt.Sprintf("%+v", found),
		}
		var errs []error
		for what, want := range map[string][]string{
			"status": {string(pod) + "/a"}, "readyz": {string(pod) + "/a", "cgroup.root"},
			"explain": {"cgroup.root", "the container runs, but its cgroup ", "is not in the tree"},
		} {
			for _, w := range want {
				if !strings.Contains(reported[what], w) {
					errs = append(errs, fmt.Errorf("%s lacks %q: %s", what, w, reported[what]))
				}
			}
		}
		if n.Problems == 0 {
			errs = append(errs, errors.New("no problem is counted"))
		}
		return errors.Join(errs...)
	})
}

// keeps checks that the agent reports a pod as the owner of a CPU.
func (r *attachedAgent) keeps(pod scenario.Ref, cpu int) {
	r.s.t.Helper()
	for _, g := range r.agent.Source().Status().CPUs.Grants {
		if g.Pod == string(pod) && g.CPUs == fmt.Sprint(cpu) {
			return
		}
	}
	r.s.t.Errorf("%s gave the CPU of %s away: %+v", r.name, pod, r.agent.Source().Status().CPUs)
}

// TestWrongTree gives agents another cgroup tree than the runtime's: by a wrong cgroup.root, or that of another node.
// The agent does not take a missing cgroup for the end of a container. It reports the fault until it gets the right
// tree, also after a restart.
func TestWrongTree(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"nri", "cri", "bypass", "hooks", "auto"} {
		for _, other := range []string{"empty", "of another node"} {
			t.Run(attach+", "+other, func(t *testing.T) {
				t.Parallel()
				s := newSharedRuntime(t)
				wrong, err := kernel.NewCgroups(cgroup.V2, "0-7", "0")
				if err == nil && other == "of another node" {
					err = errors.Join(wrong.MkdirRunc("kubepods/burstable"), wrong.MkdirRunc("kubepods/besteffort"))
				}
				if err != nil {
					t.Fatal(err)
				}
				s.tree = wrong
				shared := shortDir(t)
				one := s.startAgent("one", attach, shared, nil)
				one.working()
				k := s.kubelet(one)
				owner := s.owner(k, 1)
				one.missingCgroup(owner)
				one.keeps(owner, 1)
				if second := s.owner(k, 1); second != "" {
					one.keeps(owner, 1)
				}
				one.stop()

				same := func(c *config.Config) { c.Paths = one.config.Paths }
				two := s.startAgent("two", attach, shared, same)
				two.attached()
				two.missingCgroup(owner)
				two.keeps(owner, 1)
				two.stop()

				s.tree = s.kernel
				three := s.startAgent("three", attach, shared, same)
				three.working()
				three.owns(owner, 1)
				if n := three.agent.Source().Status(); len(n.WithoutCgroup) > 0 {
					t.Errorf("with the right tree: %v", n.WithoutCgroup)
				}
			})
		}
	}
}

// attached waits until an agent is attached.
func (r *attachedAgent) attached() {
	r.s.t.Helper()
	r.s.await(r.name+" is attached", func() error {
		if !r.agent.Connected() {
			return errNotYet
		}
		return nil
	})
}
