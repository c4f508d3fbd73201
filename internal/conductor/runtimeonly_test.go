package conductor

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// outside is a runtime that writes cpusets from outside of the agent's cgroup namespace.
type outside struct {
	*acceptingRuntime
	write func(id, cpus string)
}

func (o outside) Update(ctx context.Context, what []Settings) ([]string, error) {
	for _, s := range what {
		for _, v := range s.Values {
			o.write(s.Container, v.Text)
		}
	}
	return o.acceptingRuntime.Update(ctx, what)
}

// piggybacks is an attachment whose answers update other containers, like NRI's.
type piggybacks struct{ anything }

func (p piggybacks) Capabilities() Capabilities {
	can := p.anything.Capabilities()
	can.Piggybacks = true
	return can
}

// TestRuntimeOnly: the kernel does not let the agent write its own container's cgroup. So the
// runtime removes other owners' CPUs from it: with the answer that grants them, and with an
// update that is checked. If another program overwrites it, it is written again.
func TestRuntimeOnly(t *testing.T) {
	b := newBatch(t, "{}")
	b.node.state.Policy.Hooks = []hook.Hook{hook.CPUSetOptions{}}
	b.pod.Labels, b.pod.Annotations = nil, nil
	for _, dir := range []string{"kubepods", "kubepods/podub", "kubepods/podub/c"} {
		if err := b.kernel.MkdirRunc(dir); err != nil {
			t.Fatal(err)
		}
	}
	const file = "kubepods/podub/c/cpuset.cpus"
	ours := true
	b.kernel.FailWrites(func(path, _ string) error {
		if ours && path == file {
			return syscall.EPERM
		}
		return nil
	})
	put := func(text string) {
		ours = false
		defer func() { ours = true }()
		if err := b.kernel.WriteFile(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	runtime := outside{&acceptingRuntime{}, func(id, cpus string) {
		if id == "c" {
			put(cpus)
		}
	}}
	b.Attached(piggybacks{}, runtime)
	b.ctr.State = lifecycle.StateRunning
	sync := lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{b.pod}, Containers: []*lifecycle.Container{b.ctr}}
	if _, err := b.Handle(t.Context(), piggybacks{}, sync); err != nil {
		t.Fatal(err)
	}
	b.Flush()
	own := &beside{Conductor: b.Conductor}
	cpus := func() (kernel string, v api.Value) {
		text, err := b.kernel.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := nodeview.Explain(b, "shop", "batch", "a")
		for _, v = range all[0].Values {
			if v.Field == lifecycle.CPUSetCPUs.String() {
				break
			}
		}
		return strings.TrimSpace(string(text)), v
	}
	check := func(when, kernel, channel string, applied bool) {
		t.Helper()
		if text, v := cpus(); text != kernel || v.Channel != channel || v.Applied != applied {
			t.Errorf("%s: the kernel has %q, want %q; %+v", when, text, kernel, v)
		}
	}
	own.owner(t)
	check("refused", "", "runtime", false)
	if _, v := cpus(); !strings.Contains(v.Note, "nsdelegate") {
		t.Errorf("the reason is %q", v.Note)
	}
	if d := cmp.Diff([]string{"c cpuset.cpus 0-1"}, runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("sent:\n%s", d)
	}
	check("sent", "0-1", "runtime", true)
	if n := nodeview.Summary(b).Unapplied[api.KernelRefused]; n > 0 {
		t.Errorf("status counts %d", n)
	}

	put("0-3")
	b.RepairAll()
	if d := cmp.Diff([]string{"c cpuset.cpus 0-1"}, runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("sent again:\n%s", d)
	}
	check("repaired", "0-1", "runtime", true)

	// Now the agent knows that only the runtime can write: CPUs of a new owner leave its
	// container with the answer.
	if _, err := b.Handle(t.Context(), piggybacks{}, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: testPod(nil)}); err != nil {
		t.Fatal(err)
	}
	b.Flush()
	runtime.flush(t, b.Conductor)
	check("the owner ended", "0-3", "runtime", true)
	p := testPod(map[string]string{intent.KoordResourceStatus: `{"cpuset":"2-3"}`})
	p.ID, p.UID, p.Labels = "p2", "u2", map[string]string{intent.KoordQoSClass: "LSR"}
	ans, err := b.Handle(t.Context(), piggybacks{}, lifecycle.Event{
		Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "db2", PodID: "p2", Name: "db", CgroupsPath: "/kubepods/podu2/db2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ans.Others) != 1 || ans.Others[0].Container != "c" || ans.Others[0].Values[0].Text != "0-1" {
		t.Errorf("the answer updates %+v", ans.Others)
	}
	b.Flush()
	runtime.flush(t, b.Conductor)
	check("the next owner", "0-1", "runtime", true)
}
