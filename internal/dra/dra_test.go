package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// checkpointOf is a checkpoint with some claims, as JSON.
func checkpointOf(claims string) string {
	data := `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":` + claims + `}`
	text, _ := json.Marshal(data)
	return fmt.Sprintf(`{"Data":%s,"Checksum":%d}`, text, crc32.ChecksumIEEE([]byte(data)))
}

const ofPod = `[{"ClaimUID":"c","ClaimName":"two","Namespace":"d","PodUIDs":{"p":{}},"DriverState":{"dra.cpu":{"Devices":[]}}}]`

func sourceOf(checkpoint string, variables map[string][]string) *Source {
	s := New(Options{
		Devices: func() (map[string][]string, []string) { return variables, []string{"/etc/cdi/x.json: it is broken"} },
		Read: func(string) ([]byte, error) {
			if checkpoint == "" {
				return nil, fs.ErrNotExist
			}
			return []byte(checkpoint), nil
		},
		Checkpoint: "dra_manager_state",
	})
	s.read(nil)
	return s
}

// TestOf: only the CDI device of a pod's own claim gives CPUs, with what the node's specification says.
func TestOf(t *testing.T) {
	const device = devicePrefix + "c"
	says := func(v ...string) map[string][]string { return map[string][]string{device: v} }
	good := says("OTHER=1", "DRA_CPUSET_c=3,1-2")
	for _, c := range []struct {
		name, pod, checkpoint string
		devices, env          []string
		says                  map[string][]string
		cpus                  []int
		claim, problem        string
	}{
		{name: "no claim", pod: "p", devices: []string{"nvidia.com/gpu=0"}, says: good},
		{name: "its claim", pod: "p", checkpoint: checkpointOf(ofPod), devices: []string{device}, says: good, cpus: []int{1, 2, 3}, claim: "d/two"},
		{name: "twice", pod: "p", devices: []string{device, device}, says: good, cpus: []int{1, 2, 3}},
		{name: "without a checkpoint", pod: "p", devices: []string{device}, says: good, cpus: []int{1, 2, 3}},
		{name: "of a pod without a UID", checkpoint: checkpointOf(ofPod), devices: []string{device}, says: good, cpus: []int{1, 2, 3}, claim: "d/two"},
		{name: "of another pod", pod: "q", checkpoint: checkpointOf(ofPod), devices: []string{device}, says: good, claim: "d/two", problem: "gave claim d/two only to other pods"},
		{name: "unknown to the kubelet", pod: "p", checkpoint: checkpointOf("[]"), devices: []string{device}, says: good, problem: "has no such claim"},
		{
			name: "a corrupt checkpoint", pod: "q", checkpoint: strings.Replace(checkpointOf(ofPod), "two", "six", 1), devices: []string{device}, says: good,
			cpus: []int{1, 2, 3}, problem: "the file has the checksum",
		},
		{name: "a variable alone", pod: "p", env: []string{"DRA_CPUSET_c=0", "DRA_CPUSET_c=1", "DRA_CPUSETS=2"}, says: good, problem: "without the CDI device"},
		{name: "its own variable", pod: "p", devices: []string{device}, env: []string{"DRA_CPUSET_c=0"}, says: good, cpus: []int{1, 2, 3}},
		{
			name: "a variable of another claim", pod: "p", devices: []string{device}, env: []string{"DRA_CPUSET_b=0"}, says: good,
			cpus: []int{1, 2, 3}, problem: "without the CDI device",
		},
		{name: "no specification", pod: "p", devices: []string{device}, env: []string{"DRA_CPUSET_c=0"}, problem: "no CDI specification of the node has this device: /etc/cdi/x.json"},
		{name: "no variable", pod: "p", devices: []string{device}, says: says("DRA_CPUSET_cc=1", "DRA_CPUSET=1"), problem: "no variable DRA_CPUSET_c"},
		{name: "no list", pod: "p", devices: []string{device}, says: says("DRA_CPUSET_c=1-"), problem: "not valid"},
		{name: "an empty list", pod: "p", devices: []string{device}, says: says("DRA_CPUSET_c="), problem: "not valid"},
		{name: "shared", pod: "p", devices: []string{device}, says: says("DRA_CPUSET_c=dynamic")},
		{name: "no UID", pod: "p", devices: []string{devicePrefix + "a/b"}, says: good, problem: "no valid claim UID"},
	} {
		g := sourceOf(c.checkpoint, c.says).ForContainer(c.pod, &lifecycle.Container{CDIDevices: c.devices, Env: c.env})
		if g == nil {
			g = &lifecycle.ClaimGrant{}
		}
		var cpus []int
		claim, problem := "", ""
		for _, one := range g.Claims {
			cpus, claim = append(cpus, one.CPUs...), one.Name
		}
		for _, q := range g.Problems {
			problem += q.String() + "\n"
		}
		if !slices.Equal(cpus, c.cpus) || claim != c.claim || (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: CPUs %v of %q, problems %q", c.name, cpus, claim, problem)
		}
		if !utf8Line(problem) {
			t.Errorf("%s: not printable: %q", c.name, problem)
		}
	}
}

func utf8Line(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' })
}

// TestCheckpoint: both forms of the kubelet's checkpoint are read, and what is wrong is named.
func TestCheckpoint(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"the kubelet's own", `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":2570581864}`, "default/example [139cdb46-f989-4f17-9561-ca10cfb509a6]"},
		{"before 1.32", `{"version":"v1","entries":[{"ClaimUID":"067798be-454e-4be4-9047-1aa06aea63f7","ClaimName":"old","Namespace":"n","PodUIDs":["p"]}],"checksum":1925941526}`, "n/old [p]"},
		{"no JSON", "{", "unexpected end"},
		{"another file", `{"policyName":"none"}`, "neither data nor a version"},
		{"another kind", fmt.Sprintf(`{"Data":"{}","Checksum":%d}`, crc32.ChecksumIEEE([]byte("{}"))), "the file has kind"},
		{"another checksum", `{"Data":"{}","Checksum":1}`, "the file has the checksum 1,"},
		{"no set of pods", checkpointOf(`[{"ClaimUID":"c","PodUIDs":7}]`), "cannot unmarshal number"},
	} {
		claims, err := parseCheckpoint([]byte(c.text))
		got := fmt.Sprint(err)
		if one, is := claims["067798be-454e-4be4-9047-1aa06aea63f7"]; err == nil && is {
			for uid := range one.PodUIDs {
				got = one.name() + " [" + uid + "]"
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, wanted %s", c.name, got, c.want)
		}
	}
}

// TestFile: only a regular file that nobody else can write is read.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte(checkpointOf(ofPod)), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if claims, err := claimsOf(file); err != nil || claims["c"].name() != "d/two" {
		t.Errorf("%v, %v", claims, err)
	}
	for _, bad := range []string{link, dir} {
		if _, err := claimsOf(bad); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	if err := os.Chmod(file, 0o666); err != nil { //nolint:gosec // the fault
		t.Fatal(err)
	}
	if _, err := claimsOf(file); err == nil {
		t.Error("a file that others can write is read")
	}
	if claims, err := claimsOf(filepath.Join(dir, "none")); claims != nil || err != nil {
		t.Errorf("%v, %v", claims, err)
	}
}

// TestRefresh: a specification that is being written is read again, and a device keeps what its specification said
// before that was lost.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, last := 0, 3
		s := New(Options{Devices: func() (map[string][]string, []string) {
			if reads++; reads != last {
				return nil, nil
			}
			return map[string][]string{devicePrefix + "c": {"DRA_CPUSET_c=1"}}, nil
		}})
		ctr := &lifecycle.Container{CDIDevices: []string{devicePrefix + "c"}}
		for range 2 {
			s.Refresh(t.Context(), ctr.CDIDevices)
			if g := s.ForContainer("p", ctr); len(g.Problems) > 0 || len(g.Claims) != 1 || !slices.Equal(g.Claims[0].CPUs, []int{1}) {
				t.Errorf("after %d reads: %+v", reads, g)
			}
		}
		if reads != last+maxReads {
			t.Errorf("%d reads", reads)
		}
		now, end := context.WithCancel(t.Context())
		end()
		if reads = last; true {
			s.Refresh(now, ctr.CDIDevices)
		}
		if reads != last+1 {
			t.Errorf("%d reads although nobody waits", reads-last)
		}
	})
}

// claimsOf reads a checkpoint from a file.
func claimsOf(path string) (map[string]claim, error) {
	claims, _, err := new(checkpoint).read(path, readFile)
	return claims, err
}
