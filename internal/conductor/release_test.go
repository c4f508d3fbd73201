package conductor_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"pgregory.net/rapid"
)

// memory is a journal that outlives an agent.
type memory struct{ bytes.Buffer }

func (m *memory) Append(lines []byte) error { _, err := m.Write(lines); return err }

func (m *memory) Replace(lines []byte) error { m.Reset(); return m.Append(lines) }

// release makes the agent restore everything, and checks that the kernel has the runtime's
// requests, and pods the values of their creation.
func (mo *model) release() {
	policy := mo.policy
	policy.Hooks, policy.PlacementOn = nil, false
	r := mo.con.Release(context.Background(), policy)
	if len(r.LeftToOthers)+len(r.Failed) > 0 {
		mo.wrong("released: left %+v, failed %+v", r.LeftToOthers, r.Failed)
	}
	mo.checkReleased()
}

func (mo *model) checkReleased() {
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	const untouched = "untouched"
	must(mo.kernel.MkdirRunc(untouched))
	fresh := func(f lifecycle.Field) string {
		text, err := tree.Read(untouched, f, "")
		must(err)
		return text
	}
	check := func(dir string, f lifecycle.Field, want ...string) {
		got, err := tree.Read(dir, f, "")
		for _, w := range want {
			if err == nil && got == w {
				return
			}
		}
		mo.wrong("after a release %s of %s is %q (%v), want %q", f, dir, got, err, want)
	}
	for _, c := range mo.live() {
		if !c.started {
			continue
		}
		shares := []string{cgroupText(mo.version, lifecycle.Value{Field: lifecycle.CPUShares, Int: int64(c.asked.CPU.Shares.V)})}
		check(c.dir(), lifecycle.CPUShares, shares...)
		quota := fresh(lifecycle.CPUQuota)
		if c.asked.CPU.Quota.V > 0 {
			quota = cgroupText(mo.version, lifecycle.Value{Field: lifecycle.CPUQuota, Int: c.asked.CPU.Quota.V})
		}
		check(c.dir(), lifecycle.CPUQuota, quota)
		check(c.dir(), lifecycle.MemoryLimit, fresh(lifecycle.MemoryLimit))
		want := "0-7"
		if c.asked.CPU.CPUs != "" {
			want = c.asked.CPU.CPUs
		}
		if got := mo.effective(c); got != want {
			mo.wrong("after a release %s has CPUs %s, want %s", c.ID, got, want)
		}
	}
	for _, p := range mo.pods {
		if !p.stopped {
			for _, f := range []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit} {
				check(p.CgroupParent[1:], f, fresh(f))
			}
		}
	}
	must(mo.kernel.Rmdir(untouched))
}

func cgroupText(v cgroup.Version, value lifecycle.Value) string {
	text, err := (&cgroup.Tree{Version: v}).Resolve("a", value.Field, value.Key).Encode(value)
	must(err)
	return text
}

// TestRelease plays random histories, with restarts, and then releases: with the agent, and
// without one. Every value is as requested, or as found.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for name, from := range map[string]conductor.Carrier{"nri": carrier{}, "bypass": observing{}} {
			for _, alone := range []bool{false, true} {
				t.Run(v.String()+"/"+name+map[bool]string{true: "/alone"}[alone], func(t *testing.T) {
					t.Parallel()
					rapid.Check(t, func(rt *rapid.T) {
						mo := newModel(t, v, faults{})
						mo.from = from
						mo.keep()
						play(mo, steps().Draw(rt, "history"))
						if alone {
							mo.releaseAlone()
						} else {
							mo.release()
						}
						if len(mo.broken) > 0 {
							rt.Fatalf("%v", mo.broken)
						}
					})
				})
			}
		}
	}
}

// keep gives the model's agents a journal from now on.
func (mo *model) keep() {
	mo.journal, mo.con = &memory{}, nil
	mo.boot()
}

// releaseAlone restores what a killed agent left.
func (mo *model) releaseAlone() {
	k := keeper.New(&cgroup.Tree{FS: mo.kernel, Version: mo.version})
	must(k.Originals.Load(mo.journal, bytes.Clone(mo.journal.Bytes())))
	// A container that has ended owns no CPUs.
	mo.kernel.OnWrite(nil)
	r := conductor.SumReleased(k.ReleaseAll())
	if len(r.LeftToOthers)+len(r.Failed) > 0 {
		mo.wrong("released alone: left %+v, failed %+v", r.LeftToOthers, r.Failed)
	}
	mo.checkReleased()
}
