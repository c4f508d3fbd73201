package keeper

import (
	"errors"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

// TestLook finds writes of other programs, by one file and by a scan of all files, and nothing else.
func TestLook(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a", "p/b")
		r.SetClock(time.Now)
		r.Apply([]Item{cpus("p/a", "1"), num("p/a", lifecycle.CPUQuota, 50000), num("p/a", lifecycle.CPUPeriod, 50000), cpus("p/b", "2")})
		fresh, _ := r.watched.changedDirs()
		dirs := map[cgroup.Version]int{cgroup.V1: 3, cgroup.V2: 2}
		if len(fresh) != dirs[v] {
			t.Errorf("%v: to be watched: %q", v, fresh)
		}
		if owners := r.DifferingOwners(); len(owners) != 0 {
			t.Errorf("%v: nobody wrote, and %q differ", v, owners)
		}
		file, _ := r.tree.File("p/a", lifecycle.CPUQuota, "")
		if err := r.tree.WriteBandwidth("p/a", "20000", "50000"); err != nil {
			t.Fatal(err)
		}
		want(t, r.watched.ownersOfDifferingFiles([]string{file}), "p/a")
		want(t, r.DifferingOwners(), "p/a")
		r.log()
		r.Repair("p/a", "p/b")
		if n := len(r.log()); n != 1 {
			t.Errorf("%v: %d writes put one file right", v, n)
		}
		if owners := append(r.watched.ownersOfDifferingFiles([]string{file}), r.DifferingOwners()...); len(owners) != 0 {
			t.Errorf("%v: put right, and %q differ", v, owners)
		}
		r.Forget("p/a")
		if _, stale := r.watched.changedDirs(); len(stale) != dirs[v]-1 || len(r.watched.paths()) != 1 {
			t.Errorf("%v: watched no longer: %q, files %d", v, stale, len(r.watched.paths()))
		}
	}
}

// TestPollSeesAll reads all files in as many calls as needed.
func TestPollSeesAll(t *testing.T) {
	r := newRig(t, cgroup.V2, leafDirs...)
	r.SetClock(time.Now)
	for i, leaf := range leafDirs {
		r.Apply([]Item{cpus(leaf, string(rune('0'+i)))})
	}
	for _, leaf := range leafDirs {
		if err := r.tree.Write(leaf, lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "7"}); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	d := Drift{Keeper: r.Keeper}
	for range leafDirs { // if there are few files, one at a time is read
		all = append(all, d.pollNextFiles()...)
	}
	want(t, all, leafDirs...)
}

// TestWriteConflictThroughSteps counts writes of other programs by elapsed time: a step of the wall clock neither
// starts a new window nor extends one.
func TestWriteConflictThroughSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		r := newRig(t, cgroup.V1, "p/a")
		clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
		r.SetClock(clk.Now)
		r.SetConflictLimit(ConflictLimit{MaxRepairs: 3, Window: time.Minute})
		r.Apply([]Item{num("p/a", lifecycle.CPUShares, 500)})
		var states []string
		for _, after := range []time.Duration{0, 40 * time.Second, 40 * time.Second, 2 * time.Second, 2 * time.Second} {
			clk.Advance(after)
			clk.Step(step)
			if err := r.tree.Write("p/a", lifecycle.Value{Field: lifecycle.CPUShares, Int: 700}); err != nil {
				t.Fatal(err)
			}
			states = append(states, r.Repair("p/a")[0].State.String())
		}
		want(t, states, "applied", "applied", "applied", "applied", "left")
	}
}

// TestWriteConflict leaves a file to a program that writes it again and again, but not to one that writes
// it sometimes, nor to a runtime whose updates are reported. It writes the file again when another value is
// desired.
func TestWriteConflict(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	now := time.Unix(0, 0)
	r.SetClock(func() time.Time { return now })
	r.SetConflictLimit(ConflictLimit{MaxRepairs: 3, Window: time.Minute})
	it := num("p/a", lifecycle.CPUShares, 500)
	theirs := lifecycle.Value{Field: lifecycle.CPUShares, Int: 700}
	r.Apply([]Item{it})
	round := func(repair func(...string) []Outcome) Outcome {
		t.Helper()
		if err := r.tree.Write("p/a", theirs); err != nil {
			t.Fatal(err)
		}
		return repair("p/a")[0]
	}
	settle := func(o ...string) []Outcome { return r.Reconcile(o[0]) }
	for range 5 {
		if o := round(settle); o.State != Applied {
			t.Fatalf("told of: %+v", o)
		}
	}
	for range 5 {
		if o := round(r.Repair); o.State != Applied {
			t.Fatalf("now and then: %+v", o)
		}
		now = now.Add(40 * time.Second)
	}
	var states []string
	for range 4 {
		states = append(states, round(r.Repair).State.String())
		now = now.Add(time.Second)
	}
	// The window that began before has one write already.
	want(t, states, "applied", "left", "left", "left")
	o := round(r.Repair)
	if !errors.Is(o.Err, ErrConflict) {
		t.Errorf("left without a reason: %v", o.Err)
	}
	if got, _ := r.tree.Read("p/a", lifecycle.CPUShares, ""); got != "700" {
		t.Errorf("left alone, and it is %s", got)
	}
	if owners := r.DifferingOwners(); len(owners) != 0 {
		t.Errorf("left alone, and %q are to be put right", owners)
	}
	list, left, kept := r.ContestedFiles(10)
	if len(list) != 1 || list[0].CededReason == nil || left["cpu.shares"] != 1 || len(kept) != 0 {
		t.Errorf("told: %+v, %v", list, left)
	}
	it.Value.Int = 600
	if o := r.Apply([]Item{it})[0]; o.State != Applied {
		t.Errorf("something else is wanted: %+v", o)
	}
	r.SetConflictLimit(ConflictLimit{MaxRepairs: 1, Window: time.Minute})
	round(r.Repair)
	r.SetConflictLimit(ConflictLimit{})
	if o := round(r.Repair); o.State != Applied {
		t.Errorf("never given up, and %+v", o)
	}
}
