package keeper

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"pgregory.net/rapid"
)

// faulty is an FS whose accesses fail in a given order: nil lets one pass.
type faulty struct {
	*kernel.Cgroups
	plan   []error
	n      int
	writes []string
}

func (f *faulty) next(op, path string) error {
	if f.n++; f.n > len(f.plan) || f.plan[f.n-1] == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: f.plan[f.n-1]}
}

func (f *faulty) ReadFile(path string) ([]byte, error) {
	if err := f.next("read", path); err != nil {
		return nil, err
	}
	return f.Cgroups.ReadFile(path)
}

func (f *faulty) WriteFile(path string, data []byte) error {
	f.writes = append(f.writes, path)
	if err := f.next("write", path); err != nil {
		return err
	}
	return f.Cgroups.WriteFile(path, data)
}

// TestFaults: accesses to the kernel fail with any error, and cgroups disappear and come back, at any
// moment. Every value has an outcome with a reason, the number of writes is bounded, no other cgroup is
// written, and nothing panics. When the kernel works again all values are in force, and a release restores
// the originals.
func TestFaults(t *testing.T) {
	answers := []error{nil, nil, nil, syscall.EBUSY, syscall.EINVAL, syscall.EACCES, syscall.EROFS, syscall.ENODEV, syscall.ENOENT, syscall.EIO, syscall.EINTR}
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r := newRig(t, v, leafDirs...)
			f := &faulty{Cgroups: r.fake}
			r.Keeper = New(&cgroup.Tree{FS: f, Version: v})
			found := texts(r, leafDirs)
			gone := rapid.SampledFrom(append([]string{"", ""}, leafDirs...)).Draw(rt, "gone")
			for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
				f.plan, f.n, f.writes = rapid.SliceOfN(rapid.SampledFrom(answers), 0, 60).Draw(rt, "answers"), 0, nil
				batch := faultyBatch(rt)
				if gone != "" {
					must(r.fake.Rmdir(gone))
				}
				checkFaulty(rt, f, r.Apply(batch), len(batch))
				if gone != "" {
					must(r.fake.MkdirRunc(gone))
					found = merged(found, texts(r, []string{gone}))
					r.Forget(gone) // as the end of its owner does
				}
				f.writes = nil
				checkFaulty(rt, f, r.Repair(leafDirs...), len(batch))
			}
			f.plan = nil
			for _, leaf := range leafDirs {
				for _, o := range r.Reconcile(leaf) {
					if o.State != Applied && o.State != Unchanged {
						rt.Errorf("%v: the kernel answers, and %s of %s is %v: %v", v, o.Value.Field, leaf, o.State, o.Err)
					}
				}
			}
			for _, o := range r.ReleaseAll() {
				if o.Err != nil {
					rt.Errorf("%v: released: %+v", v, o)
				}
			}
			for file, text := range texts(r, leafDirs) {
				if text != found[file] {
					rt.Errorf("%v: %s was %q and is after the release %q", v, file, found[file], text)
				}
			}
		})
	}
}

func merged(a, b map[string]string) map[string]string {
	for k, v := range b {
		a[k] = v
	}
	return a
}

func faultyBatch(rt *rapid.T) []Item {
	var batch []Item
	for _, leaf := range leafDirs {
		if rapid.Bool().Draw(rt, "wants") {
			quota := rapid.Int64Range(10, 90).Draw(rt, "quota") * 1000
			batch = append(batch,
				cpus(leaf, rapid.SampledFrom([]string{"0-3", "2", "4-7", "0-7"}).Draw(rt, "cpus")),
				num(leaf, lifecycle.CPUQuota, quota), unified(leaf, burstKey, fmt.Sprint(quota/2)),
				num(leaf, lifecycle.MemoryLimit, rapid.Int64Range(1, 9).Draw(rt, "memory")<<20))
		}
	}
	return batch
}

func checkFaulty(rt *rapid.T, f *faulty, out []Outcome, values int) {
	for _, o := range out {
		if o.State == Refused && o.Err == nil {
			rt.Errorf("refused without a reason: %+v", o)
		}
	}
	if most := 12 * (values + len(out) + 1); len(f.writes) > most {
		rt.Errorf("%d writes for %d values", len(f.writes), values)
	}
	for _, w := range f.writes {
		inside := false
		for _, leaf := range leafDirs {
			inside = inside || strings.Contains("/"+w, "/"+leaf+"/")
		}
		if !inside {
			rt.Errorf("a write outside: %s", w)
		}
	}
}

// texts reads the files that TestFaults writes.
func texts(r *rig, dirs []string) map[string]string {
	out := map[string]string{}
	tree := &cgroup.Tree{FS: r.fake, Version: r.tree.Version}
	for _, dir := range dirs {
		for _, f := range []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUQuota, lifecycle.MemoryLimit} {
			text, err := tree.Read(dir, f, "")
			must(err)
			out[dir+" "+f.String()] = text
		}
		text, err := tree.Read(dir, lifecycle.Unified, burstKey)
		must(err)
		out[dir+" "+burstKey] = text
	}
	return out
}

// TestNamesOutside: every cgroup whose name leads out of the tree is refused.
func TestNamesOutside(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	f := &faulty{Cgroups: r.fake}
	r.Keeper = New(&cgroup.Tree{FS: f, Version: cgroup.V1})
	for _, dir := range []string{"", ".", "..", "/", "/p/a", "../p/a", "p/../../a", "p/a/..", "p//a"} {
		for _, it := range []Item{cpus(dir, "0"), num(dir, lifecycle.CPUQuota, 50000), unified(dir, "cpu.idle", "1")} {
			if o := r.Apply([]Item{it})[0]; o.State != Refused || o.Err == nil {
				t.Errorf("%q: %+v", dir, o)
			}
		}
	}
	if len(f.writes) > 0 {
		t.Errorf("written: %q", f.writes)
	}
}
