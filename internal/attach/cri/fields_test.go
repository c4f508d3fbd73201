package cri_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestEveryFieldHasARow checks the tables against the protocol's own description of its messages.
func TestEveryFieldHasARow(t *testing.T) {
	rows, used := map[string]criclient.Row{}, map[string]bool{}
	for _, r := range cri.Rows() {
		if _, twice := rows[r.Proto]; twice {
			t.Errorf("%s is listed twice", r.Proto)
		}
		rows[r.Proto] = r
		if r.Lifecycle == "" && r.Note == "" {
			t.Errorf("%s is not carried without a reason", r.Proto)
		}
	}
	var walk func(at string, m protoreflect.MessageDescriptor)
	walk = func(at string, m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := at + "." + string(f.Name())
			if _, ok := rows[name]; ok {
				used[name] = true
				continue
			}
			if _, ok := rows[name+"."]; ok {
				used[name+"."] = true
				continue
			}
			if f.Message() == nil || f.IsMap() || f.IsList() {
				t.Errorf("%s has no row", name)
				continue
			}
			walk(name, f.Message())
		}
	}
	walk("ContainerConfig", (&api.ContainerConfig{}).ProtoReflect().Descriptor())
	walk("LinuxContainerResources", (&api.LinuxContainerResources{}).ProtoReflect().Descriptor())
	walk("PodSandboxConfig", (&api.PodSandboxConfig{}).ProtoReflect().Descriptor())
	for name := range rows {
		if !used[name] {
			t.Errorf("%s has a row and is not in the protocol", name)
		}
	}
}

// TestSettings: the attachment declares exactly the fields that the table carries.
func TestSettings(t *testing.T) {
	can := cri.New(cri.Options{}).Capabilities()
	create, update := map[string]bool{}, map[string]bool{}
	for _, r := range cri.Rows() {
		if r.Setting != "" {
			create[r.Setting], update[r.Setting] = r.Create, r.Update
		}
	}
	for _, f := range lifecycle.Fields() {
		if got := can.Create.Has(f.Field); got != create[f.Name] {
			t.Errorf("%s: carried at creation: %v, its row says %v", f.Name, got, create[f.Name])
		}
		if got := can.Update.Has(f.Field); got != update[f.Name] {
			t.Errorf("%s: carried in updates: %v, its row says %v", f.Name, got, update[f.Name])
		}
		if cri.Carries(lifecycle.StopContainer, f.Field) {
			t.Errorf("%s is carried where nothing can be", f.Name)
		}
	}
	for _, name := range []string{"cpu.shares", "cpuset.cpus", "unified"} {
		if !create[name] || !update[name] {
			t.Errorf("%s is not carried", name)
		}
	}
	if update["env"] || !strings.Contains(strings.Join(names(create), " "), "env") {
		t.Error("env is carried at creation alone")
	}
}

func names(m map[string]bool) []string {
	var out []string
	for n, yes := range m {
		if yes {
			out = append(out, n)
		}
	}
	return out
}
