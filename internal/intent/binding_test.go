package intent

import "testing"

// TestNUMABindingText: a request is shown in words, with all that it asks for.
func TestNUMABindingText(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]NUMABinding{
		"as few NUMA nodes as possible":                                                             {},
		"as few NUMA nodes as possible, exclusive":                                                  {Exclusive: true},
		"2 NUMA nodes, the same number of CPUs from each":                                           {Count: 2, Even: true},
		"NUMA nodes 0-1,3, whole cores, no more sockets than needed, without pods of other classes": {IDs: []int{0, 1, 3}, WholeCores: true, BySocket: true, ExcludeOthers: true},
	} {
		if got := b.String(); got != want {
			t.Errorf("%#v is %q, want %q", b, got, want)
		}
	}
}
