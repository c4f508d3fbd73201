package intent

import (
	"maps"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// BatchSpecKey stands in reports in place of an annotation key, if only the pod's spec has batch resources.
const BatchSpecKey = "spec: " + batchCPU + ", " + batchMemory

// readBatchSpec reads the batch resources of the pod's spec, which replace the batch resources of the
// annotation. Koordinator's webhook writes the annotation for nodes that cannot see the spec, and leaves
// out init containers.
func readBatchSpec(spec *lifecycle.PodSpec, out *Pod) {
	if spec == nil {
		return
	}
	byName := map[string]Batch{}
	for _, c := range spec.Containers {
		b, isSet := batchOf(c)
		if !isSet {
			continue
		}
		b.From = spec.From
		byName[c.Name] = b
		if copied, ok := out.Batch.V[c.Name]; ok && !sameBatch(copied, b) {
			out.reportWarning(KoordExtended, c.Name, "container %s: the pod's spec has another value, which has priority", printable(c.Name))
		}
	}
	if len(byName) == 0 {
		return
	}
	all := maps.Clone(out.Batch.V)
	if all == nil {
		all = map[string]Batch{}
	}
	maps.Copy(all, byName)
	key := out.Batch.Key
	if key == "" {
		key = BatchSpecKey
	}
	out.Batch = Sourced[map[string]Batch]{all, key}
}

// batchOf returns the batch resources of a container. The result isSet is false if the container's spec has none.
func batchOf(c lifecycle.ContainerSpec) (b Batch, isSet bool) {
	for _, f := range []struct {
		into *int64
		from lifecycle.Amounts
		name string
	}{
		{&b.RequestCPU, c.Requests, batchCPU},
		{&b.LimitCPU, c.Limits, batchCPU},
		{&b.LimitMemory, c.Limits, batchMemory},
		{new(int64), c.Requests, batchMemory}, // sets only isSet: the agent does not use this amount
	} {
		if v, ok := f.from[f.name]; ok {
			*f.into, isSet = v, true
		}
	}
	return b, isSet
}

// sameBatch reports whether all amounts above 0 are equal.
func sameBatch(a, b Batch) bool {
	return max(a.RequestCPU, 0) == max(b.RequestCPU, 0) && max(a.LimitCPU, 0) == max(b.LimitCPU, 0) &&
		max(a.LimitMemory, 0) == max(b.LimitMemory, 0)
}

// PodOverhead returns the overhead of a pod's RuntimeClass, in milli-CPUs and bytes. If the overhead has batch
// resources, PodOverhead returns these instead of CPU and memory.
func PodOverhead(spec *lifecycle.PodSpec) (cpu, memory int64) {
	of := func(names ...string) int64 {
		for _, n := range names {
			if v, ok := spec.Overhead[n]; ok {
				return max(v, 0)
			}
		}
		return 0
	}
	return of(batchCPU, lifecycle.ResourceCPU), of(batchMemory, lifecycle.ResourceMemory)
}
