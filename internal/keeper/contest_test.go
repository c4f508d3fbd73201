package keeper

import (
	"errors"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

// TestContestedList: another program changes the CPUs of a cgroup again and again. The keeper never leaves
// the list to it, and repairs it after growing pauses up to the longest. It repairs other values of the
// owner at once. After a minute without changes all pauses are as before.
func TestContestedList(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a")
		clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
		r.SetClock(clk.Now)
		r.SetConflictLimit(ConflictLimit{MaxRepairs: 3, Window: time.Minute})
		r.Apply([]Item{cpus("p/a", "1"), num("p/a", lifecycle.CPUShares, 500)})
		spoil := func(values ...lifecycle.Value) {
			t.Helper()
			for _, value := range values {
				if err := r.tree.Write("p/a", value); err != nil {
					t.Fatal(err)
				}
			}
		}
		theirs := lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}
		has := func() string {
			text, _ := r.tree.Read("p/a", lifecycle.CPUSetCPUs, "")
			return text
		}
		var pauses []string
		for range 10 {
			spoil(theirs)
			r.Repair("p/a")
			due, contested := r.nextRepair("p/a")
			if has() != "1" || contested == (len(pauses) < 2) {
				t.Fatalf("%v: after %d writes it has CPUs %s, contested: %v", v, len(pauses)+1, has(), contested)
			}
			pause := max(0, due.Sub(clk.Now()))
			if pauses = append(pauses, pause.String()); pause > 0 {
				spoil(theirs)
				if len(pauses) < 5 { // more often than the number at which a file would be left to the program
					spoil(lifecycle.Value{Field: lifecycle.CPUShares, Int: 700})
				}
				clk.Advance(pause - 1)
				r.Repair("p/a")
				if shares, _ := r.tree.Read("p/a", lifecycle.CPUShares, ""); has() != "0-3" || shares == "700" {
					t.Errorf("%v: before it is due it has CPUs %s and shares %s", v, has(), shares)
				}
				if owners := r.DifferingOwners(); len(owners) != 0 {
					t.Errorf("%v: before it is due %q are to be put right", v, owners)
				}
				clk.Advance(1)
			}
		}
		want(t, pauses, "0s", "0s", "1s", "2s", "4s", "8s", "10s", "10s", "10s", "10s")
		list, left, kept := r.ContestedFiles(10)
		if len(list) == 0 || !errors.Is(list[0].ThrottledReason, ErrContested) || list[0].CededReason != nil || left["cpuset.cpus"] != 0 || kept["cpuset.cpus"] != 1 {
			t.Errorf("%v: told: %+v, %v, %v", v, list, left, kept)
		}
		clk.Advance(time.Minute)
		if _, _, kept := r.ContestedFiles(0); len(kept) != 0 {
			t.Errorf("%v: in peace, and it is said to be contested: %v", v, kept)
		}
		r.Repair("p/a")
		if _, contested := r.nextRepair("p/a"); contested || has() != "1" {
			t.Errorf("%v: in peace, it has CPUs %s, and it is still waited: %v", v, has(), contested)
		}
	}
}

// TestIsCpusetFile lists the files that are never left to another program.
func TestIsCpusetFile(t *testing.T) {
	for p, want := range map[fileKey]bool{
		{field: lifecycle.CPUSetCPUs}: true, {field: lifecycle.CPUSetMems}: true,
		{field: lifecycle.Unified, key: cgroup.PartitionFile}: true, {field: lifecycle.Unified, key: cgroup.ExclusiveFile}: true,
		{field: lifecycle.CPUQuota}: false, {field: lifecycle.Unified, key: "memory.high"}: false,
	} {
		if p.isCpusetFile() != want {
			t.Errorf("%s %s: %v", p.field, p.key, !want)
		}
	}
}
