package bypass

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// copied are the fields that a CRI update can change: where each one is in a request of
// another client (theirs) and in one of ours.
var copied = [6]struct {
	field  lifecycle.Field
	theirs func(*lifecycle.Resources, amount)
	ours   func(*cri.LinuxContainerResources, amount)
}{
	{lifecycle.CPUShares, func(r *lifecycle.Resources, a amount) { r.CPU.Shares = lifecycle.Some(uint64(a.n)) },
		func(r *cri.LinuxContainerResources, a amount) { r.CpuShares = a.n }},
	{lifecycle.CPUQuota, func(r *lifecycle.Resources, a amount) { r.CPU.Quota = lifecycle.Some(a.n) },
		func(r *cri.LinuxContainerResources, a amount) { r.CpuQuota = a.n }},
	{lifecycle.CPUPeriod, func(r *lifecycle.Resources, a amount) { r.CPU.Period = lifecycle.Some(uint64(a.n)) },
		func(r *cri.LinuxContainerResources, a amount) { r.CpuPeriod = a.n }},
	{lifecycle.MemoryLimit, func(r *lifecycle.Resources, a amount) { r.Memory.Limit = lifecycle.Some(a.n) },
		func(r *cri.LinuxContainerResources, a amount) { r.MemoryLimitInBytes = a.n }},
	{lifecycle.CPUSetCPUs, func(r *lifecycle.Resources, a amount) { r.CPU.CPUs = a.text },
		func(r *cri.LinuxContainerResources, a amount) { r.CpusetCpus = a.text }},
	{lifecycle.CPUSetMems, func(r *lifecycle.Resources, a amount) { r.CPU.Mems = a.text },
		func(r *cri.LinuxContainerResources, a amount) { r.CpusetMems = a.text }},
}

// rowOf finds a field's row in copied; -1 for none.
func rowOf(f lifecycle.Field) int {
	for i := range copied {
		if copied[i].field == f {
			return i
		}
	}
	return -1
}

var copiedFields = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return rowOf(f) >= 0 })

// stored are the resources of a container that the CRI can change, as its
// stored copy has them, by the rows of copied. 0 and "" are "not said".
type stored [len(copied)]amount

func storedOf(r *lifecycle.Resources) (s stored) {
	for i, row := range copied {
		v, _ := r.Of(row.field, "")
		s[i] = amountOf(v)
	}
	return s
}

// asked returns what somebody else put into the copy since it was seen: what
// differs from then and is not ours. nil where nothing does.
func asked(now, seen, ours stored) (r *lifecycle.Resources) {
	for i, row := range copied {
		if now[i] == seen[i] || now[i] == ours[i] {
			continue
		}
		if r == nil {
			r = &lifecycle.Resources{}
		}
		row.theirs(r, now[i])
	}
	return r
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

// drop takes out what somebody else asked for since: asking for what was there
// before is a request again.
func (s *stored) drop(r *lifecycle.Resources) {
	for i, row := range copied {
		if _, set := r.Of(row.field, ""); set {
			s[i] = amount{}
		}
	}
}

// request asks for values, and for nothing else: 0 is "leave it" to runtimes.
func request(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		if i := rowOf(v.Field); i >= 0 {
			copied[i].ours(r, amountOf(v))
		}
	}
	return r
}
