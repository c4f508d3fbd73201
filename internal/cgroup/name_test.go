package cgroup

import (
	"path"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

func TestNamed(t *testing.T) {
	id := strings.Repeat("0a", 32)
	const uid = "3f0d2f5c-6a6f-4f2e-8a4c-0a1b2c3d4e5f"
	under := strings.ReplaceAll(uid, "-", "_")
	for dir, want := range map[string]Name{
		"kubepods":                                 {Kind: KubepodsDir},
		"kubepods.slice":                           {Kind: KubepodsDir},
		"lab.slice/lab-kubepods.slice":             {Kind: KubepodsDir},
		"kubepods/burstable":                       {Kind: QoSDir},
		"kubepods.slice/kubepods-besteffort.slice": {Kind: QoSDir},
		"lab.slice/lab-kubepods.slice/lab-kubepods-burstable.slice": {Kind: QoSDir},
		"kubepods/besteffort/pod" + uid:                             {PodDir, uid},
		"kubepods/pod0123456789abcdef0123456789abcdef":              {PodDir, "0123456789abcdef0123456789abcdef"},
		"kubepods.slice/kubepods-pod" + under + ".slice":            {PodDir, uid},
		"a/kubepods-burstable-pod" + under + ".slice":               {PodDir, uid},
		"kubepods/pod" + uid + "/" + id:                             {ContainerDir, id},
		"x.slice/cri-containerd-" + id + ".scope":                   {ContainerDir, id},
		"x.slice/crio-" + id + ".scope":                             {ContainerDir, id},
		"x.slice/docker-" + id + ".scope":                           {ContainerDir, id},
		"x.slice/crio-conmon-" + id + ".scope":                      {},
		"system.slice":                                              {},
		"user.slice/user-0.slice":                                   {},
		"burstable.slice":                                           {},
		"pod.slice":                                                 {},
		"kubepods/pod":                                              {},
		"kubepods/pod../x":                                          {},
		"kubepods/pod" + strings.Repeat("a", 129):                   {},
		"kubepods/podx y":                                           {},
		"kubepods/" + id[:63]:                                       {},
		"kubepods/" + strings.ToUpper(id):                           {},
		"x/cri-containerd-" + id[1:] + ".scope":                     {},
		"x/-" + id + ".scope":                                       {},
		"x/" + id + ".scope":                                        {},
		"":                                                          {},
		".":                                                         {},
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podslice": {},
	} {
		if got := ParseName(dir); got != want {
			t.Errorf("Named(%q) = %+v, want %+v", dir, got, want)
		}
	}
}

// FuzzNamed: names parsed by ParseName agree with those that the path functions make.
func FuzzNamed(f *testing.F) {
	id := strings.Repeat("0a", 32)
	f.Add("abc", id)
	f.Add("3f0d2f5c-6a6f", id)
	f.Add(strings.Repeat("a-", 60_000), strings.Repeat("0a", 60_000))
	f.Add(strings.Repeat("/kubepods-pod_", 10_000), id)
	f.Fuzz(func(t *testing.T, uid, ctr string) {
		defer clock.Watch(t, len(uid)+len(ctr))()
		if n := ParseName(uid); n.ID != "" && (strings.ContainsAny(n.ID, "/.:*\x00 ") || len(n.ID) > maxIDLength) {
			t.Fatalf("Named(%q) lets %q through", uid, n.ID)
		}
		if !isID(uid) || strings.Contains(uid, "_") {
			return
		}
		slice := "kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		if dir, err := PodPath(slice); err == nil && ParseName(dir) != (Name{PodDir, uid}) {
			t.Fatalf("pod %q is read from %q as %+v", uid, dir, ParseName(dir))
		}
		if !isContainerID(ctr) {
			return
		}
		for _, cgroupsPath := range []string{slice + ":cri-containerd:" + ctr, "/kubepods/pod" + uid + "/" + ctr} {
			dir, err := Path("", cgroupsPath)
			if err != nil {
				continue
			}
			if ParseName(dir) != (Name{ContainerDir, ctr}) || path.Base(path.Dir(dir)) == "" {
				t.Fatalf("%q is read as %+v", dir, ParseName(dir))
			}
		}
	})
}
