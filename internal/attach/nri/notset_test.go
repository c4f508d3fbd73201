package nri

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestEveryAdjustment: each field of the library's adjustments is either one that policies set or listed
// with a reason. A newer library with a new field fails this test.
func TestEveryAdjustment(t *testing.T) {
	t.Parallel()
	set := map[string]bool{}
	for _, s := range settableFields {
		set[s.proto] = true
	}
	reasons := map[string]bool{}
	for _, n := range UnsetFields() {
		if set[n.Proto] || reasons[n.Proto] || n.Reason == "" {
			t.Errorf("%s is set, there twice, or has no reason", n.Proto)
		}
		reasons[n.Proto] = true
	}
	found := adjustments((*api.ContainerAdjustment)(nil).ProtoReflect().Descriptor(), "")
	for _, proto := range found {
		if !set[proto] && !reasons[proto] {
			t.Errorf("%s is neither set nor listed with a reason", proto)
		}
	}
	for proto := range reasons {
		if !slices.Contains(found, proto) {
			t.Errorf("%s is listed and not in the library", proto)
		}
	}
}

// adjustments lists the fields of a message, including those of messages that only group fields.
func adjustments(m protoreflect.MessageDescriptor, within string) (all []string) {
	groups := []protoreflect.Name{"linux", "resources", "cpu", "memory", "pids"}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := within + string(f.Name())
		switch {
		case slices.Contains(groups, f.Name()):
			all = append(all, adjustments(f.Message(), name+".")...)
		case f.IsMap():
			all = append(all, name+"{}")
		case f.IsList():
			all = append(all, name+"[]")
		default:
			all = append(all, name)
		}
	}
	return all
}
