package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

// TestConvert converts documents of other systems, and lists keys without an equivalent with their lines.
// Golden files beside the documents have the results.
func TestConvert(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/convert/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Convert(filepath.Base(file), data)
		var b strings.Builder
		for _, p := range c.Unconverted {
			fmt.Fprintf(&b, "# %s\n", p)
		}
		if err != nil {
			b.WriteString(err.Error() + "\n")
		}
		b.Write(c.Text)
		golden(t, strings.TrimSuffix(file, ".yaml")+".want", b.String())
	}
}

// TestPolicyFile: the file that placement.policyFile names replaces the section, and sets pools. Errors in
// it name its file and line.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata/convert")
	if err != nil {
		t.Fatal(err)
	}
	of := func(file, more string) (Config, error) {
		return Parse("c.yaml", []byte(header+"placement: {policy: balloons, policyFile: "+filepath.Join(dir, file)+"}\n"+more))
	}
	c, err := of("balloons.yaml", "")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "balloons.yaml"))
	want, _ := Convert("balloons.yaml", text)
	if got := string(Print(c)); strings.Replace(got, c.Placement.PolicyFile, `""`, 1) != string(Print(want.Config)) {
		t.Errorf("policyFile gives\n%s", got)
	}
	again, err := Parse("printed", Print(c))
	if err != nil || string(Print(again)) != string(Print(c)) {
		t.Errorf("printed and read again: %v", err)
	}
	for _, bad := range []struct{ file, more, want string }{
		{"balloons.yaml", "pools: {reserved: \"2\"}\n", "c.yaml:3: placement.policyFile: "},
		{"bad-values.yaml", "", filepath.Join(dir, "bad-values.yaml") + ":6: spec.balloonTypes[0].minCPUs: "},
		{"none-such.yaml", "", "c.yaml:3: placement.policyFile: open "},
		{"kubelet.yaml", "", "kubelet.yaml:1: "},
	} {
		if _, err := of(bad.file, bad.more); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: error is %v, want %s", bad.file, err, bad.want)
		}
	}
	if _, err := Parse("c.yaml", []byte(header+"placement: {policyFile: "+filepath.Join(dir, "balloons.yaml")+"}\n")); err == nil {
		t.Error("a policyFile without the policy is taken")
	}
	c, err = Parse("c.yaml", []byte(header+"placement: {policy: topology-aware, policyFile: "+filepath.Join(dir, "topology-aware.yaml")+"}\n"))
	if err != nil || !c.Placement.TopologyAware.ColocatePods || c.Pools.Reserved != "0-1" || c.Pools.Shared != "2-15" {
		t.Errorf("a TopologyAwarePolicy gives %+v, %+v, %v", c.Placement.TopologyAware, c.Pools, err)
	}
	if _, err := Parse("c.yaml", []byte(header+"placement: {policy: topology-aware, policyFile: "+filepath.Join(dir, "balloons.yaml")+"}\n")); err == nil {
		t.Error("the resource of another policy is taken")
	}
	if got := KeyWarnings("c.yaml", []byte(header+"placement: {policy: balloons, policyFile: "+filepath.Join(dir, "balloons.yaml")+"}\n")); len(got) == 0 {
		t.Error("keys without an equivalent are not reported")
	}
}

// TestFollowPolicyFile: a change of the policy file counts as a change of the configuration.
func TestFollowPolicyFile(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(max int) {
		text := fmt.Sprintf("apiVersion: config.nri/v1alpha1\nkind: BalloonsPolicy\nspec:\n  balloonTypes:\n  - {name: a, maxCPUs: %d}\n", max)
		if err := os.WriteFile(policy+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(policy+".new", policy); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(header+"placement: {policy: balloons, policyFile: "+policy+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFollowing(t, file, nil)
	for n := 1; n <= 2; n++ {
		if n > 1 {
			write(n)
		}
		h := f.next()
		if h.applied == nil || h.applied.Placement.Balloons.BalloonTypes[0].MaxCPUs != n {
			t.Fatalf("%+v, want maxCPUs %d", h, n)
		}
	}
}

// FuzzConvert: foreign documents are refused or converted to a configuration that is read back.
func FuzzConvert(f *testing.F) {
	files, _ := filepath.Glob("testdata/convert/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		c, err := Convert("fuzz", data)
		if err != nil {
			return
		}
		got, err := Parse("text", c.Text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, c.Text)
		}
		if string(Print(got)) != string(Print(c.Config)) {
			t.Fatalf("read back as\n%s", Print(got))
		}
	})
}
