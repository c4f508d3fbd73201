package cri

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/ociedit"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// TestCheckDecision: a container that started without its decision is logged, with the reason.
func TestCheckDecision(t *testing.T) {
	for _, c := range []struct {
		name    string
		happens func(dir string) error
		want    string
	}{
		{"no decision", func(string) error { return nil }, ""},
		{"another OCI runtime", func(dir string) error { return ociedit.WriteDecision(dir, ociedit.Decision{ID: "c1"}) }, "is not trimtab-oci"},
		{"an error", func(dir string) error {
			return errors.Join(ociedit.WriteDecision(dir, ociedit.Decision{ID: "c1"}), ociedit.WriteResult(dir, "c1", errors.New("no room")))
		}, "no room"},
		{"applied", func(dir string) error {
			return errors.Join(ociedit.WriteDecision(dir, ociedit.Decision{ID: "c1"}), ociedit.WriteResult(dir, "c1", nil))
		}, ""},
	} {
		var log bytes.Buffer
		w := wrapper{dir: t.TempDir(), log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := c.happens(w.dir); err != nil {
			t.Fatal(err)
		}
		containerd := runtimes.Identify("containerd", "2.4.2", runtimes.Version{})
		result := w.result(containerd, "c1", nil)
		if got := log.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: logged %q, want %q", c.name, got, c.want)
		}
		if !result.Fields.Has(lifecycle.ProcessLimit) || result.Pending || (result.Err == "") != (c.want == "") || !strings.Contains(result.Err, c.want) {
			t.Errorf("%s: explain says %+v, want %q", c.name, result, c.want)
		}
	}
}

// TestWrapperFields: CRI-O gets no value through the wrapper, and a value that an OCI spec cannot express
// is an error.
func TestWrapperFields(t *testing.T) {
	w := wrapper{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	values := []lifecycle.Value{{Field: lifecycle.ProcessIO, Text: "IOPRIO_CLASS_BE 4"}, {Field: lifecycle.CPUShares, Int: 9}}
	if ours, rest := w.splitValues(runtimes.Identify("containerd", "2.4.2", runtimes.Version{}), values); len(ours) != 1 || len(rest) != 1 {
		t.Errorf("containerd: %v, %v", ours, rest)
	}
	if ours, rest := w.splitValues(runtimes.Identify("cri-o", "1.36.0", runtimes.Version{}), values); len(ours) != 0 || len(rest) != 2 {
		t.Errorf("CRI-O: %v, %v", ours, rest)
	}
	for _, f := range []lifecycle.Field{lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched, lifecycle.MemPolicy} {
		if err := w.writeDecision("c1", []lifecycle.Value{{Field: f, Text: ""}}); err == nil {
			t.Errorf("%v: a text without a form was written", f)
		}
	}
}

// TestDescribe: what the wrapper has set is in the description of a container, as if the runtime reported it. What it
// has not set is not.
func TestDescribe(t *testing.T) {
	w := wrapper{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	values := []lifecycle.Value{
		{Field: lifecycle.ProcessLimit, Key: "RLIMIT_CORE", Text: "1:2"}, {Field: lifecycle.ProcessIO, Text: "IOPRIO_CLASS_BE 4"},
		{Field: lifecycle.ProcessSched, Text: "SCHED_BATCH nice=5"}, {Field: lifecycle.IntelRDT, Key: "closid", Text: "gold"},
		{Field: lifecycle.IntelRDT, Key: "monitoring", Text: "true"}, {Field: lifecycle.InjectedHook, Key: "poststop audit", Text: `{"path":"/usr/bin/audit"}`},
	}
	if err := w.writeDecision("c1", values); err != nil {
		t.Fatal(err)
	}
	c := lifecycle.Container{ID: "c1"}
	if w.addAppliedValues(&c); c.Rlimits != nil || c.RDT != nil || c.Hooks != nil {
		t.Errorf("before the wrapper ran: %+v", c)
	}
	if err := ociedit.WriteResult(w.dir, "c1", nil); err != nil {
		t.Fatal(err)
	}
	w.addAppliedValues(&c)
	if len(c.Rlimits) != 1 || c.Rlimits[0].Text() != "1:2" || c.IOPriority.Text() != "IOPRIO_CLASS_BE 4" || c.Scheduler.Text() != "SCHED_BATCH nice=5" {
		t.Errorf("%+v", c)
	}
	if c.RDT.Member("closid") != "gold" || c.RDT.Member("monitoring") != "true" || len(c.Hooks.OfStage("poststop")) != 1 {
		t.Errorf("%+v, %+v", c.RDT, c.Hooks)
	}
}
