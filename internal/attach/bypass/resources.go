package bypass

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// bareValue returns a value without its scope and reason. For an unlimited CPU quota or memory limit, which runtimes
// store as -1 or 0, it returns -1.
func bareValue(v lifecycle.Value) lifecycle.Value {
	if v.Int <= 0 && (v.Field == lifecycle.CPUQuota || v.Field == lifecycle.MemoryLimit) {
		v.Int = -1
	}
	return lifecycle.Value{Field: v.Field, Int: v.Int, Text: v.Text}
}

// copyFields are the fields that a CRI update can change and that this package compares.
var copyFields = [6]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems,
}

// copyFieldIndex returns the index of a field in copyFields, or -1 if copyFields does not have it.
func copyFieldIndex(f lifecycle.Field) int { return slices.Index(copyFields[:], f) }

var copyFieldSet = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return copyFieldIndex(f) >= 0 })

// storedCopy has the values of the runtime's stored copy of one container, in the order of copyFields. 0 and "" mean
// unset.
type storedCopy [len(copyFields)]lifecycle.Value

func newStoredCopy(r *lifecycle.Resources) (s storedCopy) {
	for i, f := range copyFields {
		v, _ := r.Value(f, "")
		s[i] = bareValue(v)
	}
	return s
}

// foreignChanges returns what another client has written to the runtime's copy since the agent last read it. These are
// the fields of now that differ both from seen, which the agent read last, and from ours, which the agent wrote last.
// It returns nil if there are none.
func foreignChanges(now, seen, ours storedCopy) *lifecycle.Resources {
	r, differs := &cri.LinuxContainerResources{}, false
	for i := range copyFields {
		if now[i] != seen[i] && now[i] != ours[i] {
			differs = criclient.Put(r, now[i]) || differs
		}
	}
	if !differs {
		return nil
	}
	return criclient.Resources(r)
}

// put merges values into a copy, and returns the values for which the CRI has no field.
func (s *storedCopy) put(values []lifecycle.Value) (unsupported []lifecycle.Value) {
	for _, v := range values {
		if i := copyFieldIndex(v.Field); i >= 0 {
			s[i] = bareValue(v)
		} else {
			unsupported = append(unsupported, v)
		}
	}
	return unsupported
}

// clearChanged clears the fields that another client has changed after the agent wrote them. If that client later sets
// the value that the agent had written, foreignChanges then reports it as the client's change.
func (s *storedCopy) clearChanged(r *lifecycle.Resources) {
	for i, f := range copyFields {
		if _, set := r.Value(f, ""); set {
			s[i] = lifecycle.Value{}
		}
	}
}

// updateRequest returns an update with only these values. Runtimes do not change a field whose value is 0.
func updateRequest(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		criclient.Put(r, bareValue(v))
	}
	return r
}
