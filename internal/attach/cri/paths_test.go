package cri

import "testing"

// TestPathForms: the form of one container's path holds for the next.
func TestPathForms(t *testing.T) {
	for _, c := range []struct {
		name, parent, at, want string // of a container a1, then of b2 in parent + "2"
	}{
		{"containerd", "/kubepods/burstable/pod1", "/kubepods/burstable/pod1/a1", "/kubepods/burstable/pod12/b2"},
		{"containerd, systemd", "/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:a1", "kubepods-pod1.slice2:cri-containerd:b2"},
		{"the same, parent told short", "kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:a1", "kubepods-pod1.slice2:cri-containerd:b2"},
		{"CRI-O", "/kubepods/pod1", "/kubepods/pod1/crio-a1", "/kubepods/pod12/crio-b2"},
		{"CRI-O's own folder", "/kubepods/pod1", "/kubepods/pod1/crio-a1/container", "/kubepods/pod12/crio-b2/container"},
		{"of another pod", "/kubepods/pod1", "/kubepods/pod9/a1", ""},
		{"beside the pod", "/kubepods/pod1", "/kubepods/pod11/a1", ""},
		{"without its id", "/kubepods/pod1", "/kubepods/pod1/x", ""},
		{"its id twice", "/kubepods/pod1", "/kubepods/pod1/a1/a1", ""},
		{"no parent", "", "/a1", ""},
		{"nothing told", "/kubepods/pod1", "", ""},
	} {
		s, ok := parsePathForm(c.at, c.parent, "a1")
		if ok != (c.want != "") {
			t.Errorf("%s: read %+v, %v", c.name, s, ok)
			continue
		}
		if !ok {
			continue
		}
		if got := s.path(c.parent, "a1"); got != c.at {
			t.Errorf("%s: itself is at %q, want %q", c.name, got, c.at)
		}
		if got := s.path(c.parent+"2", "b2"); got != c.want {
			t.Errorf("%s: the next is at %q, want %q", c.name, got, c.want)
		}
	}
}
