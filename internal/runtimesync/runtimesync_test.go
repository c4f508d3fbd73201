package runtimesync_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// TestTexts: the resources that the runtime reports, and those that an update requests.
func TestTexts(t *testing.T) {
	unlimited := runtimesync.FieldTexts{lifecycle.CPUQuota: "-1", lifecycle.MemoryLimit: "-1"}
	full := &lifecycle.Resources{
		CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512), Quota: lifecycle.Some[int64](50000), Period: lifecycle.Some[uint64](100000),
			CPUs: "0-3", Mems: "0"},
		Memory: lifecycle.Memory{Limit: lifecycle.Some[int64](1 << 20)},
	}
	all := runtimesync.FieldTexts{lifecycle.CPUShares: "512", lifecycle.CPUQuota: "50000", lifecycle.CPUPeriod: "100000",
		lifecycle.CPUSetCPUs: "0-3", lifecycle.CPUSetMems: "0", lifecycle.MemoryLimit: "1048576"}
	for name, tt := range map[string]struct {
		got, want runtimesync.FieldTexts
	}{
		"reported nothing":  {runtimesync.FieldTextsOf(&lifecycle.Resources{}), unlimited},
		"reported all":      {runtimesync.FieldTextsOf(full), all},
		"requested none":    {runtimesync.RequestedTexts(nil), runtimesync.FieldTexts{}},
		"requested nothing": {runtimesync.RequestedTexts(&lifecycle.Resources{}), runtimesync.FieldTexts{}},
		"requested all":     {runtimesync.RequestedTexts(full), all},
	} {
		if d := cmp.Diff(tt.want, tt.got); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// TestCopy: a value that a runtime may have ignored does not count as stored, and an update is stored when
// it is written.
func TestCopy(t *testing.T) {
	shares := lifecycle.Value{Field: lifecycle.CPUShares, Int: 512}
	for name, tt := range map[string]struct {
		do          func(c *runtimesync.Copy)
		has, missed bool
	}{
		"sent":           {func(c *runtimesync.Copy) { c.NoteSent(shares) }, true, false},
		"sent too early": {func(c *runtimesync.Copy) { c.CreateAnswered(); c.NoteSent(shares) }, false, true},
		"under way":      {func(c *runtimesync.Copy) { c.Pending = runtimesync.FieldTexts{lifecycle.CPUShares: "512"} }, false, false},
		"written": {func(c *runtimesync.Copy) {
			c.Pending = runtimesync.FieldTexts{lifecycle.CPUShares: "512"}
			c.UpdateDone()
		}, true, false},
		"renamed": {func(c *runtimesync.Copy) {
			var former runtimesync.Copy
			former.CreateAnswered()
			former.NoteSent(shares)
			c.InheritFrom(&former)
		}, false, true},
		"reported": {func(c *runtimesync.Copy) {
			c.CreateAnswered()
			c.SetReported(&lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}})
		}, true, false},
	} {
		var c runtimesync.Copy
		tt.do(&c)
		if has, missed := c.Has(shares), c.CreateDone(); has != tt.has || missed != tt.missed {
			t.Errorf("%s: has %v, missed %v", name, has, missed)
		}
	}
}

// TestDiffers: which values are kept out of the runtime's copy.
func TestDiffers(t *testing.T) {
	cpus := lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-1"}
	scaled := lifecycle.Value{Field: lifecycle.CPUQuota, Int: 50000, Scaled: true}
	own, rest := &engine.Container{Assignment: engine.Assignment{CPUGroup: placement.CPUGroup{Pool: placement.Exclusive}}}, &engine.Container{Assignment: engine.Assignment{CPUGroup: placement.CPUGroup{Pool: placement.Unclassified}}}
	for name, tt := range map[string]struct {
		copied runtimesync.Copy
		ctr    *engine.Container
		v      lifecycle.Value
		want   bool
	}{
		"lacks it":                    {runtimesync.Copy{}, own, cpus, true},
		"has it":                      {runtimesync.Copy{Stored: runtimesync.FieldTexts{lifecycle.CPUSetCPUs: "0-1"}}, own, cpus, false},
		"only in the kernel":          {runtimesync.Copy{}, rest, cpus, false},
		"a list of its own":           {runtimesync.Copy{Stored: runtimesync.FieldTexts{lifecycle.CPUSetCPUs: "0-3"}}, rest, cpus, true},
		"computed, without a record":  {runtimesync.Copy{}, own, scaled, false},
		"computed, with one":          {runtimesync.Copy{Recorded: true}, own, scaled, true},
		"what the runtime stores not": {runtimesync.Copy{}, own, lifecycle.Value{Field: lifecycle.Unified, Key: "cpu.idle"}, false},
	} {
		if got := tt.copied.Lacks(tt.ctr, tt.v); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLacks: the values that are sent are those that the copy lacks, the runtime accepts and no other
// plugin sets.
func TestLacks(t *testing.T) {
	own := &engine.Container{Assignment: engine.Assignment{CPUGroup: placement.CPUGroup{Pool: placement.Exclusive}}}
	values := []lifecycle.Value{{Field: lifecycle.CPUSetCPUs, Text: "0-1"}, {Field: lifecycle.CPUShares, Int: 512}, {Field: lifecycle.CPUQuota, Int: 1}}
	can := &route.Capabilities{Copy: lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return f != lifecycle.CPUShares })}
	ceded := func(f lifecycle.Field) string { return map[lifecycle.Field]string{lifecycle.CPUQuota: "ceded"}[f] }
	for phase, want := range map[route.Phase][]lifecycle.Field{
		route.PhaseCopying: {lifecycle.CPUSetCPUs, lifecycle.CPUQuota}, route.PhasePiggyback: {lifecycle.CPUSetCPUs},
	} {
		var got []lifecycle.Field
		for _, v := range (&runtimesync.Copy{}).MissingValues(own, slices.Clone(values), phase, can, ceded) {
			got = append(got, v.Field)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("phase %d:\n%s", phase, d)
		}
	}
	if got := (&runtimesync.Copy{CreatePending: true}).MissingValues(own, values, route.PhaseCopying, can, ceded); got != nil {
		t.Errorf("to a runtime that does not know it: %v", got)
	}
}

// TestQueue: copies are sent oldest first when the node is idle, with pauses. A refused copy goes to the
// end, is given up after five times, and tried again later.
func TestQueue(t *testing.T) {
	now := time.Unix(1e9, 0)
	q := runtimesync.NewQueue(func() time.Time { return now }, 100*time.Millisecond)
	a, b := &runtimesync.Copy{ID: "a"}, &runtimesync.Copy{ID: "b"}
	q.Add(a)
	q.Add(b)
	q.Add(a)
	for name, tt := range map[string]struct {
		idle  time.Duration
		piggy bool
		after time.Duration
		want  time.Duration
	}{
		"just after an event":       {0, false, 0, time.Second},
		"quiet":                     {time.Second, false, 0, 0},
		"never quiet for too long":  {0, false, runtimesync.MaxWait, 0},
		"where answers can take it": {0, true, runtimesync.MaxWait, time.Second},
	} {
		was := now
		now = now.Add(tt.after)
		if got := q.WaitTime(tt.idle, tt.piggy); got != tt.want {
			t.Errorf("%s: waits %v, want %v", name, got, tt.want)
		}
		now = was
	}
	if got := q.Next(); got != a || len(q.Waiting) != 1 {
		t.Fatalf("next is %v of %d", got, 1+len(q.Waiting))
	}
	q.NoteSendEnded()
	if got := q.WaitTime(time.Hour, false); got != 100*time.Millisecond {
		t.Errorf("between two: waits %v", got)
	}
	q.Remove(b)
	for try := 1; try <= 5; try++ {
		if givenUp := q.NoteRefused(a); givenUp != (try == 5) {
			t.Fatalf("try %d: given up is %v", try, givenUp)
		}
		if try < 5 && q.Next() != a {
			t.Fatal("another was queued")
		}
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 16 * time.Minute} {
		if got := q.Postpone(a); got != want {
			t.Fatalf("tried again after %v, want %v", got, want)
		}
		q.QueuePostponed()
		if len(q.Waiting) != 0 {
			t.Fatal("tried again at once")
		}
		now = now.Add(want)
		q.QueuePostponed()
		if len(q.Waiting) != 1 || !q.NoteRefused(q.Next()) {
			t.Fatal("not tried again once")
		}
	}
	q.Postpone(a)
	q.NoteAccepted(a, nil)
	now = now.Add(time.Hour)
	if q.QueuePostponed(); len(q.Waiting) != 0 {
		t.Error("what the runtime took is tried again")
	}
}

// TestPiggyback: on a node that is never idle each copy goes once with an answer.
func TestPiggyback(t *testing.T) {
	now := time.Unix(1e9, 0)
	q := runtimesync.NewQueue(func() time.Time { return now }, 0)
	copies := map[string]*runtimesync.Copy{"a": {ID: "a", CreatePending: true}, "b": {ID: "b", Pending: runtimesync.FieldTexts{}}, "c": {ID: "c"}, "d": {ID: "d"}}
	for _, id := range slices.Sorted(maps.Keys(copies)) {
		q.Add(copies[id])
	}
	shares := []lifecycle.Value{{Field: lifecycle.CPUShares, Int: 512}}
	var sent []string
	for range 6 {
		id, _ := q.Piggyback(func(*runtimesync.Copy) []lifecycle.Value { return shares })
		sent = append(sent, id)
		now = now.Add(runtimesync.MaxWait / 2)
	}
	if d := cmp.Diff([]string{"", "", "c", "d", "", ""}, sent); d != "" {
		t.Errorf("sent with answers:\n%s", d)
	}
	if len(q.Waiting) != 4 || copies["c"].Has(shares[0]) {
		t.Error("the runtime does not say that it took them")
	}
}
