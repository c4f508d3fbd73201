package cgroup

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

func TestPath(t *testing.T) {
	tests := []struct{ name, parent, in, want string }{
		{"cgroupfs", "", "/kubepods/burstable/podU/ID", "kubepods/burstable/podU/ID"},
		{"cgroupfs, parent ignored", "/other", "/kubepods/podU/ID", "kubepods/podU/ID"},
		{"relative below parent", "/kubepods/podU", "ID", "kubepods/podU/ID"},
		{"relative with parent in it", "/kubepods/podU", "kubepods/podU/ID", "kubepods/podU/ID"},
		{
			"systemd", "", "kubepods-burstable-podX.slice:cri-containerd:ID",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/cri-containerd-ID.scope",
		},
		{"systemd, underscored uid", "", "kubepods-poda_b.slice:crio:1", "kubepods.slice/kubepods-poda_b.slice/crio-1.scope"},
		{"root slice", "", "-.slice:docker:ID", "docker-ID.scope"},
		{"empty slice", "", ":docker:ID", "system.slice/docker-ID.scope"},
		{"empty slice with parent", "a-b.slice", ":docker:ID", "a.slice/a-b.slice/docker-ID.scope"},
		{"name is a slice", "", "a.slice:x:a-b.slice", "a.slice/a-b.slice"},
		{"empty prefix", "", "a.slice::ID", "a.slice/-ID.scope"},
		{"colons in a path", "", "/a:b:c", "a:b:c"},
		{"empty", "", "", ""},
		{"root", "", "/", ""},
		{"dots", "", "/kubepods/../../etc", ""},
		{"dot", "", "/kubepods/./x", ""},
		{"empty part", "", "/kubepods//x", ""},
		{"newline", "", "/kubepods/x\ny", ""},
		{"NUL", "", "/kubepods/x\x00", ""},
		{"no slice", "", "foo:docker:ID", ""},
		{"empty part in slice", "", "a--b.slice:x:ID", ""},
		{"no name", "", "a.slice:x:", ""},
		{"too long", "", "/" + strings.Repeat("a/", 3000), ""},
		{"bad parent", "/../x", "ID", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Path(tt.parent, tt.in)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("Path(%q, %q) = %q, %v, want %q", tt.parent, tt.in, got, err, tt.want)
			}
		})
	}
}

func TestPodPath(t *testing.T) {
	full := "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX.slice"
	tests := []struct{ in, want string }{
		{"/kubepods/besteffort/podX", "kubepods/besteffort/podX"},
		{"kubepods-besteffort-podX.slice", full},
		{"/kubepods-besteffort-podX.slice", full},
		{"/" + full, full},
		{full, full},
		{"-.slice", ""},
		{"/", ""},
		{"", ""},
		{"..", ""},
		{"a-.slice", ""},
		{".slice", ""},
	}
	for _, tt := range tests {
		got, err := PodPath(tt.in)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("PodPath(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}

func FuzzPath(f *testing.F) {
	f.Add("", "/kubepods/burstable/podU/ID")
	f.Add("/kubepods/podU", "ID")
	f.Add("a.slice", "kubepods-burstable-podX.slice:cri-containerd:ID")
	f.Add("", "-.slice:..:.slice")
	f.Add("", "..")
	f.Add(strings.Repeat("a-", 60_000)+".slice", strings.Repeat("b:", 60_000))
	f.Add(strings.Repeat("/..", 60_000), strings.Repeat("x/", 60_000))
	f.Fuzz(func(t *testing.T, parent, in string) {
		defer clock.Watch(t, len(parent)+len(in))()
		check := func(dir string, err error) {
			if err != nil {
				return
			}
			for part := range strings.SplitSeq(dir, "/") {
				if part == "" || part == "." || part == ".." {
					t.Fatalf("Path(%q, %q) = %q", parent, in, dir)
				}
			}
			if strings.ContainsAny(dir, "\x00\n") || len(dir) > maxPath || !fs.ValidPath(dir) {
				t.Fatalf("Path(%q, %q) = %q", parent, in, dir)
			}
		}
		check(Path(parent, in))
		check(PodPath(parent))
	})
}

// unlooked is a tree whose directories cannot be opened, for a reason.
type unlooked struct {
	FS
	why error
}

func (u unlooked) List(string) ([]string, error) {
	return nil, &fs.PathError{Op: "open", Path: "p", Err: u.why}
}

// TestExists: a directory that cannot be opened counts as existing.
func TestExists(t *testing.T) {
	for why, exists := range map[error]bool{
		syscall.ENOENT: false, syscall.ENOTDIR: false, syscall.EMFILE: true, syscall.EIO: true, syscall.EINTR: true, syscall.EACCES: true,
	} {
		if got := (&Tree{FS: unlooked{why: why}, Version: V2}).Exists("p", ""); got != exists {
			t.Errorf("%v: exists %t, want %t", why, got, exists)
		}
	}
}
