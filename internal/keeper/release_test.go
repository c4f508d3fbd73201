package keeper

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestReleaseUnderTasks restores an unset list in a cgroup with tasks: version 2 refuses to remove the list
// (kernels 6.1 and 6.12: ENOSPC).
func TestReleaseUnderTasks(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a")
	if err := r.fake.SetTasks("p/a", 1); err != nil {
		t.Fatal(err)
	}
	r.Apply([]Item{cpus("p/a", "1")})
	if err := r.fake.WriteFile("p/a/cpuset.cpus", []byte("\n")); err == nil {
		t.Fatal("the fake takes a set away from tasks")
	}
	o := r.Release("p/a", lifecycle.CPUSetCPUs, "")
	if o.State != Applied || o.Err != nil {
		t.Errorf("%+v", o)
	}
	if got, err := r.tree.Effective("p/a", lifecycle.CPUSetCPUs); err != nil || got != "0-7" {
		t.Errorf("tasks may use %q, %v", got, err)
	}
	if rows := r.Rows(); len(rows) != 0 {
		t.Errorf("rows left: %+v", rows)
	}
}

// TestReleaseOfTheForgotten restores values of an owner that was reported as ended although its cgroup
// exists; an owner that comes back is known as before.
func TestReleaseOfTheForgotten(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a", "p/b")
	r.Apply([]Item{cpus("p/a", "1"), cpus("p/b", "2")})
	r.Forget("p/a")
	r.Forget("p/b")
	r.Apply([]Item{cpus("p/b", "3")})
	for _, o := range r.ReleaseAll() {
		if o.Err != nil {
			t.Errorf("%+v", o)
		}
	}
	for _, dir := range []string{"p/a", "p/b"} {
		if got, err := r.tree.Read(dir, lifecycle.CPUSetCPUs, ""); err != nil || got != "" {
			t.Errorf("%s has %q, %v, had nothing", dir, got, err)
		}
	}
	if rows := r.Rows(); len(rows) != 0 {
		t.Errorf("rows left: %+v", rows)
	}
}

// nowhere is a journal that is never read.
type nowhere struct{}

func (nowhere) Append([]byte) error { return nil }

func (nowhere) Replace([]byte) error { return nil }

// TestReleaseOfWhatWasGivenBack does not change a list that an earlier keeper already restored, and
// restores it if the earlier keeper could not.
func TestReleaseOfWhatWasGivenBack(t *testing.T) {
	for _, tt := range []struct{ name, kernel, want string }{
		{"a part of it, which the runtime has written since", "0-1", "0-1"},
		{"the list before, since the keeper was killed", "2-3", "0-3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, cgroup.V1, "p/a")
			line := `{"owner":"a","dir":"p/a","field":"cpuset.cpus","ours":"0-3","was":"2-3","original":"0-3","asked":""}` + "\n"
			if err := r.Originals.Load(nowhere{}, []byte(line)); err != nil {
				t.Fatal(err)
			}
			if err := r.tree.Write("p/a", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: tt.kernel}); err != nil {
				t.Fatal(err)
			}
			out := r.ReleaseAll()
			if got, err := r.tree.Read("p/a", lifecycle.CPUSetCPUs, ""); err != nil || got != tt.want {
				t.Errorf("it has %q, %v, want %q: %+v", got, err, tt.want, out)
			}
		})
	}
}

// noted is a journal in memory.
type noted struct{ strings.Builder }

func (n *noted) Append(lines []byte) error { _, err := n.Write(lines); return err }

func (n *noted) Replace(lines []byte) error { n.Reset(); return n.Append(lines) }

// TestForgottenIsTold: the journal has the entries that a keeper dropped of an earlier one. A container
// without a cgroup gets one later, with values that are not the agent's.
func TestForgottenIsTold(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	line := `{"owner":"b","dir":"p/b","field":"cpuset.cpus","ours":"0-3","asked":""}` + "\n"
	j := &noted{}
	j.WriteString(line)
	if err := r.Originals.Load(j, []byte(line)); err != nil {
		t.Fatal(err)
	}
	r.Apply([]Item{cpus("p/a", "1")})
	next := newRig(t, cgroup.V1, "p/b")
	if err := next.Originals.Load(nowhere{}, []byte(j.String())); err != nil {
		t.Fatal(err)
	}
	if err := next.tree.Write("p/b", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-1"}); err != nil {
		t.Fatal(err)
	}
	next.ReleaseAll()
	if got, err := next.tree.Read("p/b", lifecycle.CPUSetCPUs, ""); err != nil || got != "0-1" {
		t.Errorf("it has %q, %v, want 0-1, after\n%s", got, err, j)
	}
}

// TestUntold: original values are restored if the runtime reported them or the keeper found them; otherwise
// the value stays and is reported.
func TestUntold(t *testing.T) {
	share := func(n int64, back bool) Item {
		return Item{
			Target: Target{Owner: "p", Dir: "p", Parent: true}, Restore: back, RequestUnknown: true,
			Value: lifecycle.Value{Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: n},
		}
	}
	read := func(r *rig) string {
		text, err := r.tree.Read("p", lifecycle.CPUShares, "")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r := newRig(t, cgroup.V1, "p")
	if err := r.fake.WriteFile("cpu/p/cpu.shares", []byte("2")); err != nil {
		t.Fatal(err)
	}
	r.Apply([]Item{share(512, false)})
	if o := r.Apply([]Item{share(1024, true)}); o[0].Err != nil || read(r) != "2" {
		t.Errorf("%+v, and the kernel has %s", o, read(r))
	}
	r = newRig(t, cgroup.V1, "p") // an agent that does not know what another one has written
	if err := r.fake.WriteFile("cpu/p/cpu.shares", []byte("512")); err != nil {
		t.Fatal(err)
	}
	if o := r.Apply([]Item{share(1024, true)}); o[0].State != Ceded || !errors.Is(o[0].Err, ErrOriginalUnknown) || read(r) != "512" {
		t.Errorf("%+v, and the kernel has %s", o, read(r))
	}
}

// TestLostJournal: if an earlier keeper wrote values and its journal is lost, the texts in the files do not
// count as originals. Values that the runtime requested are restored; all others stay and are reported. In
// a cgroup that was made since then the originals are certain.
func TestLostJournal(t *testing.T) {
	r := newRig(t, cgroup.V1, "old", "told", "new")
	for dir, text := range map[string]string{"old": "512", "told": "512", "new": "100"} { // 512 is a value of the earlier keeper
		if err := r.fake.WriteFile("cpu/"+dir+"/cpu.shares", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Originals.Load(nowhere{}, nil); err != nil {
		t.Fatal(err)
	}
	if !r.Originals.NoteEarlierKeeper([]string{"old", "told"}) {
		t.Fatal("it has a journal")
	}
	item := func(dir string, asked int64) Item {
		it := Item{Target: Target{Owner: dir, Dir: dir, Parent: true}, Value: lifecycle.Value{Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: 600}}
		if asked > 0 {
			it.Requested = &lifecycle.Value{Field: lifecycle.CPUShares, Int: asked}
		}
		return it
	}
	r.Apply([]Item{item("old", 0), item("told", 2), item("new", 0)})
	unknown := ""
	for _, o := range r.ReleaseAll() {
		if errors.Is(o.Err, ErrOriginalUnknown) {
			unknown += o.Target.Dir
		}
	}
	if unknown != "old" {
		t.Errorf("unknown is what was in %q", unknown)
	}
	for dir, want := range map[string]string{"old": "600", "told": "2", "new": "100"} {
		if got, err := r.tree.Read(dir, lifecycle.CPUShares, ""); err != nil || got != want {
			t.Errorf("%s has %s (%v), want %s", dir, got, err, want)
		}
	}
}

// TestCopied: values that were also sent to the runtime are known after a restart.
func TestCopied(t *testing.T) {
	r := newRig(t, cgroup.V1, "c")
	journal := &kept{}
	if err := r.Originals.Load(journal, []byte{}); err != nil {
		t.Fatal(err)
	}
	r.RecordOnly([]Item{{
		Target: Target{Owner: "c", Dir: "c"}, Value: lifecycle.Value{Field: lifecycle.CPUShares, Int: 512},
		Requested: &lifecycle.Value{Field: lifecycle.CPUShares, Int: 2},
	}})
	next := New(r.tree)
	if err := next.Originals.Load(nowhere{}, journal.lines); err != nil {
		t.Fatal(err)
	}
	if got := next.Originals.Copied(); len(got) != 1 || got[0].Dir != "c" || got[0].Field != lifecycle.CPUShares || got[0].RequestedValue != "2" {
		t.Errorf("%+v from %s", got, journal.lines)
	}
}

// kept is a journal in memory.
type kept struct{ lines []byte }

func (k *kept) Append(lines []byte) error { k.lines = append(k.lines, lines...); return nil }

func (k *kept) Replace(lines []byte) error { k.lines = append([]byte{}, lines...); return nil }
