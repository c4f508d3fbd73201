package cri_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/ociedit"
	"github.com/trimtab/trimtab/test/attachtest"
)

// wrappedRig is a rig whose OCI runtime is the wrapper.
func wrappedRig(t *testing.T, fail bool, decisions string) *rig {
	t.Helper()
	dir := t.TempDir()
	g := &rig{t: t, dir: dir, runtime: startRuntime(t, filepath.Join(dir, "r.sock")), h: newHandler()}
	o := g.options(fail)
	o.DecisionsDir = decisions
	g.attachWith(o)
	attachtest.Until(t, "calls are held", func() bool { state, _, _ := g.a.Status(); return state == connect.StateSynchronised })
	return g
}

// TestDecisionForTheWrapper: the values for which the CRI has no field are in the decision file before the
// runtime starts the container, and the file is removed with the container.
func TestDecisionForTheWrapper(t *testing.T) {
	decisions := filepath.Join(t.TempDir(), "oci")
	if err := ociedit.WriteDecision(decisions, ociedit.Decision{ID: "of-another-day"}); err != nil {
		t.Fatal(err)
	}
	g := wrappedRig(t, false, decisions)
	for _, f := range []lifecycle.Field{lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched, lifecycle.MemPolicy} {
		if can := g.a.Capabilities(); !can.Create.Has(f) || can.Update.Has(f) || g.again().Capabilities().Create.Has(f) {
			t.Errorf("%v: carried without a wrapper, in updates, or not at all", f)
		}
	}
	if _, err := ociedit.ReadDecision(decisions, "of-another-day"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the decision about a container that is gone: %v", err)
	}
	pod := g.runPod()
	g.h.says(lifecycle.CreateContainer, lifecycle.Value{Field: lifecycle.ProcessLimit, Key: "RLIMIT_NOFILE", Text: "1:2"},
		lifecycle.Value{Field: lifecycle.ProcessIO, Text: "IOPRIO_CLASS_BE 4"}, lifecycle.Value{Field: lifecycle.ProcessSched, Text: "SCHED_BATCH nice=5"},
		lifecycle.Value{Field: lifecycle.MemPolicy, Text: "MPOL_BIND nodes=0"}, lifecycle.Value{Field: lifecycle.OOMScoreAdj, Int: -7})
	id, err := g.create(pod, config())
	if err != nil {
		t.Fatal(err)
	}
	if got := g.runtime.request("CreateContainer").(*api.CreateContainerRequest).Config.Linux.Resources.OomScoreAdj; got != -7 {
		t.Errorf("the runtime got the OOM score %d", got)
	}
	if _, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	got, err := ociedit.ReadDecision(decisions, id)
	if err != nil {
		t.Fatal(err)
	}
	want := ociedit.Decision{
		Version: ociedit.DecisionVersion, ID: id, Rlimits: []ociedit.Rlimit{{Type: "RLIMIT_NOFILE", Soft: 1, Hard: 2}},
		IOPriority: &ociedit.IOPriority{Class: "IOPRIO_CLASS_BE", Priority: 4}, Scheduler: &ociedit.Scheduler{Policy: "SCHED_BATCH", Nice: 5},
		MemoryPolicy: &ociedit.MemoryPolicy{Mode: "MPOL_BIND", Nodes: "0"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := g.client.RemoveContainer(g.ctx(), &api.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "the decision is removed", func() bool {
		_, err := ociedit.ReadDecision(decisions, id)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestNoDecisionForTheWrapper: if a decision cannot be written, only the failure policy Fail keeps the
// container from starting.
func TestNoDecisionForTheWrapper(t *testing.T) {
	for _, fail := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g := wrappedRig(t, fail, file+"/oci")
		pod := g.runPod()
		g.h.says(lifecycle.CreateContainer, lifecycle.Value{Field: lifecycle.ProcessIO, Text: "IOPRIO_CLASS_BE 4"})
		id, err := g.create(pod, config())
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id})
		if refused := status.Code(err) == codes.Internal && strings.Contains(err.Error(), "write the decision"); refused != fail {
			t.Errorf("fail %v: %v", fail, err)
		}
	}
}
