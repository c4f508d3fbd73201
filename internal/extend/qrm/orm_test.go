package qrm_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ormRows are the cases of Katalyst's out-of-band resource manager (its unit tests), by the names of our reference.
const ormRows = "O1 O2 O3 O4 O5 O6 O7 O8 O9 O10 O11"

// TestORM: each case is played here, or by the test that is named. Where the agent differs, the row says how;
// docs/qrm.md has the reasons. A row that is missing fails.
func TestORM(t *testing.T) {
	rows := map[string]struct {
		play    func(t *testing.T)
		by      string // file of this repository and its test
		differs string
	}{
		"O1 events that the runtime sends":         {by: "internal/attach/nri/settings_test.go TestSubscription", differs: "more events, so that nothing waits for a poll"},
		"O2 what is allocated is in the answer":    {play: allocatedCPUs},
		"O3 a pod that nobody knows":               {play: unknownPod},
		"O4 a runtime lists what it runs":          {by: "internal/engine/pools_test.go TestRecoveredStateIsEqual", differs: "the state is rebuilt from records, and what differs is written"},
		"O5 a sandbox of a pod without a spec":     {play: unknownSpec, differs: "it is created and reported: a fault of the agent stops no pod"},
		"O6 an update of the kubelet":              {by: "internal/attach/nri/attachment_test.go TestUpdateIsReasserted", differs: "decided values are kept in the same update"},
		"O7 a name that is mapped":                 {play: mappedName},
		"O8 both names in one container":           {play: bothNames, differs: "the container is created without the resource, and that is reported"},
		"O9 init containers in a reconcile":        {play: initContainer},
		"O10 a policy that does not exist":         {by: "internal/agent/topologymanager_test.go TestTopologyManagerPolicies", differs: "none is the default"},
		"O11 more than 8 NUMA nodes and no policy": {by: "internal/agent/topologymanager_test.go TestTopologyManagerNodes", differs: "up to 64 NUMA nodes"},
	}
	played := map[string]bool{}
	for name, row := range rows {
		id, _, _ := strings.Cut(name, " ")
		played[id] = true
		t.Run(name, func(t *testing.T) {
			if row.play != nil {
				row.play(t)
				return
			}
			file, test, _ := strings.Cut(row.by, " ")
			text, err := os.ReadFile(filepath.Join("../../..", file))
			if err != nil || !strings.Contains(string(text), "\nfunc "+test+"(") {
				t.Errorf("%s has no %s: %v", file, test, err)
			}
		})
	}
	for _, id := range strings.Fields(ormRows) {
		if !played[id] {
			t.Errorf("row %s is not played", id)
		}
	}
}

// values returns an answer's values as text.
func values(a lifecycle.HookServerAnswer) string {
	var out []string
	for _, v := range a.Values {
		out = append(out, v.Setting()+" "+v.String())
	}
	return strings.Join(out, ", ")
}

func allocatedCPUs(t *testing.T) {
	t.Helper()
	r := start(t, t.TempDir(), nil)
	for name, info := range map[string]*api.ResourceAllocationInfo{
		"cpu": {OciPropertyName: "CpusetCpus", AllocationResult: "5-6,10"}, "memory": {OciPropertyName: "CpusetMems", AllocationResult: "7-8,11"},
	} {
		f := &fake{options: &api.ResourcePluginOptions{}, allocate: func(context.Context, *api.ResourceRequest) (*api.ResourceAllocation, error) {
			return allocation(name, info), nil
		}}
		f.serve(t, filepath.Join(r.dir, name+".sock"))
		r.mustRegister(name, name+".sock")
	}
	a, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"cpu": 3000, "memory": 1 << 30})).Allocate(t.Context(), nil)
	if got := values(a); err != nil || len(a.Problems) > 0 || got != "cpuset.cpus 5-6,10, cpuset.mems 7-8,11" {
		t.Errorf("%q, %v, %v", got, a.Problems, err)
	}
}

func unknownPod(t *testing.T) {
	t.Helper()
	r := start(t, t.TempDir(), nil)
	if q := r.Question(pod, app("app"), nil); q != nil {
		t.Errorf("without a plugin: %+v", q)
	}
	if v := r.Values("nobody"); len(v) > 0 {
		t.Errorf("values %v", v)
	}
}

func unknownSpec(t *testing.T) {
	t.Helper()
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.FailClosed = true })
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("nic", "1")}
	f.serve(t, filepath.Join(r.dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	q := r.Question(pod, app("app"), nil)
	_, problems := q.Hints(t.Context())
	a, err := q.Allocate(t.Context(), nil)
	if err != nil || len(a.Values) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Reason, "does not know the pod's spec") || len(f.asked) > 0 {
		t.Errorf("%v, %v, problems %v, asked %v", a, err, problems, f.asked)
	}
}

func mappedName(t *testing.T) {
	t.Helper()
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.ResourceNames = map[string]string{"test/cpu": "cpu"} })
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("cpu", "1")}
	f.serve(t, filepath.Join(r.dir, "cpu.sock"))
	r.mustRegister("cpu", "cpu.sock")
	for _, requested := range []string{"cpu", "test/cpu"} {
		if a, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{requested: 1000})).Allocate(t.Context(), nil); err != nil || len(a.Values) != 1 {
			t.Errorf("%s: %+v, %v", requested, a, err)
		}
		if got := f.asked[len(f.asked)-1]; got.GetResourceName() != "cpu" || len(got.GetResourceRequests()) != 1 || got.GetResourceRequests()["cpu"] == 0 {
			t.Errorf("%s is asked as %v", requested, got)
		}
	}
}

func bothNames(t *testing.T) {
	t.Helper()
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.ResourceNames = map[string]string{"test/cpu": "cpu"} })
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("cpu", "1")}
	f.serve(t, filepath.Join(r.dir, "cpu.sock"))
	r.mustRegister("cpu", "cpu.sock")
	q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"cpu": 1000, "test/cpu": 1}))
	if _, problems := q.Hints(t.Context()); len(problems) != 1 || !strings.Contains(problems[0].Value, "cpu and test/cpu") || len(f.asked) > 0 {
		t.Errorf("problems %v, asked %v", problems, f.asked)
	}
}

// initContainer: a plugin that forgets all is asked again for the app container alone.
func initContainer(t *testing.T) {
	t.Helper()
	f := &fake{options: &api.ResourcePluginOptions{NeedReconcile: true}, allocate: gives("nic", "1")}
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.ReconcileInterval = 5 * time.Millisecond })
	f.serve(t, filepath.Join(r.dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	of := spec(lifecycle.Amounts{"nic": 1})
	of.Containers[0].Requests = lifecycle.Amounts{"nic": 1}
	for _, name := range []string{"first", "app"} {
		if _, err := r.Question(pod, app(name), of).Allocate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	count := func(name string) (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, a := range f.asked {
			if a.GetContainerName() == name {
				n++
			}
		}
		return n
	}
	until(t, "the app container is allocated again", func() bool { return count("app") > 2 })
	if n := count("first"); n != 1 {
		t.Errorf("the init container is asked for %d times", n)
	}
}
