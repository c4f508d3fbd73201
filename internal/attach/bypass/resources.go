package bypass

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// storedValue is the stored value of one field: a number or a string.
type storedValue struct {
	n    int64
	text string
}

// amountOf converts a value. It stores unlimited as -1 or 0, and the two compare as equal.
func amountOf(v lifecycle.Value) storedValue {
	switch {
	case !v.Field.Numeric():
		return storedValue{text: v.Text}
	case v.Int <= 0 && (v.Field == lifecycle.CPUQuota || v.Field == lifecycle.MemoryLimit):
		return storedValue{n: -1}
	}
	return storedValue{n: v.Int}
}

// valueOf is the inverse of amountOf.
func (a storedValue) valueOf(f lifecycle.Field) lifecycle.Value {
	return lifecycle.Value{Field: f, Int: a.n, Text: a.text}
}

// copyFields are the fields that a CRI update can change and that this package compares.
var copyFields = [6]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems,
}

// rowOf returns the index of a field in copyFields; -1 for none.
func rowOf(f lifecycle.Field) int { return slices.Index(copyFields[:], f) }

var copyFieldSet = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return rowOf(f) >= 0 })

// stored are the resources in the runtime's stored copy that the CRI can change, in the order of copyFields. 0 and
// "" mean unset.
type stored [len(copyFields)]storedValue

func storedOf(r *lifecycle.Resources) (s stored) {
	for i, f := range copyFields {
		v, _ := r.Of(f, "")
		s[i] = amountOf(v)
	}
	return s
}

// foreignChanges returns what another client has written to the runtime's copy since we read it: the fields of now
// that differ from both seen and ours. It returns nil if there are none.
func foreignChanges(now, seen, ours stored) *lifecycle.Resources {
	r, differs := &cri.LinuxContainerResources{}, false
	for i, f := range copyFields {
		if now[i] != seen[i] && now[i] != ours[i] {
			differs = criclient.Put(r, now[i].valueOf(f)) || differs
		}
	}
	if !differs {
		return nil
	}
	return criclient.Resources(r)
}

// put merges values into a copy, and returns those that the CRI has no field for.
func (s *stored) put(values []lifecycle.Value) (left []lifecycle.Value) {
	for _, v := range values {
		if i := rowOf(v.Field); i >= 0 {
			s[i] = amountOf(v)
		} else {
			left = append(left, v)
		}
	}
	return left
}

// drop removes the fields that another client has requested since. If we later request the earlier value, it then
// counts as a new request.
func (s *stored) drop(r *lifecycle.Resources) {
	for i, f := range copyFields {
		if _, set := r.Of(f, ""); set {
			s[i] = storedValue{}
		}
	}
}

// request makes an update with only these values: runtimes leave a field of 0 unchanged.
func request(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		criclient.Put(r, amountOf(v).valueOf(v.Field))
	}
	return r
}
