package bypass

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// amount is what is stored of one field: a number, or a text.
type amount struct {
	n    int64
	text string
}

// amountOf reads a value. An unlimited one is -1 or 0, of which comparing knows no difference.
func amountOf(v lifecycle.Value) amount {
	switch {
	case !v.Field.Numeric():
		return amount{text: v.Text}
	case v.Int <= 0 && (v.Field == lifecycle.CPUQuota || v.Field == lifecycle.MemoryLimit):
		return amount{n: -1}
	}
	return amount{n: v.Int}
}

// valueOf is the inverse of amountOf.
func (a amount) valueOf(f lifecycle.Field) lifecycle.Value {
	return lifecycle.Value{Field: f, Int: a.n, Text: a.text}
}

// copied are the fields that a CRI update can change and that are compared.
var copied = [6]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems,
}

// rowOf finds a field in copied; -1 for none.
func rowOf(f lifecycle.Field) int { return slices.Index(copied[:], f) }

var copiedFields = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return rowOf(f) >= 0 })

// stored are the resources of a container that the CRI can change, as its
// stored copy has them, by the rows of copied. 0 and "" are "not said".
type stored [len(copied)]amount

func storedOf(r *lifecycle.Resources) (s stored) {
	for i, f := range copied {
		v, _ := r.Of(f, "")
		s[i] = amountOf(v)
	}
	return s
}

// asked returns what another client put into the runtime's copy since it was read:
// what differs from then and is not ours. nil where nothing does.
func asked(now, seen, ours stored) *lifecycle.Resources {
	r, differs := &cri.LinuxContainerResources{}, false
	for i, f := range copied {
		if now[i] != seen[i] && now[i] != ours[i] {
			differs = criclient.Put(r, now[i].valueOf(f)) || differs
		}
	}
	if !differs {
		return nil
	}
	return criclient.Resources(r)
}

// put lays values over a copy, as far as the CRI has a field for them.
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

// drop takes out what another client asked for since: asking for what was there
// before is a request again.
func (s *stored) drop(r *lifecycle.Resources) {
	for i, f := range copied {
		if _, set := r.Of(f, ""); set {
			s[i] = amount{}
		}
	}
}

// request asks for values, and for nothing else: 0 is "leave it" to runtimes.
func request(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		criclient.Put(r, amountOf(v).valueOf(v.Field))
	}
	return r
}
