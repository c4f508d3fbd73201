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

// copyFields are the fields that a CRI update can change. The session also compares them, to find changes by other
// clients.
var copyFields = [6]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems,
}

// copyFieldIndex returns the index of a field in copyFields, or -1 if copyFields does not have it.
func copyFieldIndex(f lifecycle.Field) int { return slices.Index(copyFields[:], f) }

// copyFieldSet has the fields of copyFields.
var copyFieldSet = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return copyFieldIndex(f) >= 0 })

// storedCopy has the resources that the runtime stores for one container, in the order of copyFields. 0 and "" mean
// that a resource is not set.
type storedCopy [len(copyFields)]lifecycle.Value

func newStoredCopy(r *lifecycle.Resources) (s storedCopy) {
	for i, f := range copyFields {
		v, _ := r.Value(f, "")
		s[i] = bareValue(v)
	}
	return s
}

// foreignChanges returns the fields of the runtime's current copy that another client has written since the agent last
// read the copy. Such a field differs from lastRead, the copy that the agent read last. It also differs from written,
// the values that the agent wrote last. foreignChanges returns nil if there is no such field.
func foreignChanges(current, lastRead, written storedCopy) *lifecycle.Resources {
	r, differs := &cri.LinuxContainerResources{}, false
	for i := range copyFields {
		if current[i] != lastRead[i] && current[i] != written[i] {
			differs = criclient.Put(r, current[i]) || differs
		}
	}
	if !differs {
		return nil
	}
	return criclient.Resources(r)
}

// put sets the fields of a copy to the given values. It returns the values whose fields are not in copyFields.
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

// clearChanged clears in s the fields that are set in r. s has the values that the agent wrote last, and r has the
// fields that another client has changed since then. Without clearChanged, foreignChanges would miss a later change in
// which the client sets the agent's value again.
func (s *storedCopy) clearChanged(r *lifecycle.Resources) {
	for i, f := range copyFields {
		if _, set := r.Value(f, ""); set {
			s[i] = lifecycle.Value{}
		}
	}
}

// updateRequest returns an update request with only these values. Runtimes ignore the fields that are 0 or "".
func updateRequest(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		criclient.Put(r, bareValue(v))
	}
	return r
}
