package config_test

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

func file(name, body string) config.Layer { return config.Layer{Name: name, Data: []byte(head + body)} }

func shared(name, body string) config.Layer {
	return config.Layer{Name: name, Data: []byte(head + body), Shared: true}
}

func TestMerge(t *testing.T) {
	c, from, err := config.Merge(
		file("f", "strict: true\npools: {reserved: \"0\", system: \"1\"}\nfailurePolicy: {hooks: [cpuset, batch]}\ncluster: {enabled: true}\n"),
		shared("c", "pools: {reserved: \"0-1\"}\nhooks:\n  cpuset:\n"),
		shared("g", "failurePolicy:\n  hooks: [rdt]\n"),
		shared("n", "strict: false\n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if c.Strict || c.Pools.Reserved != "0-1" || c.Pools.System != "1" || strings.Join(c.FailurePolicy.Hooks, ",") != "rdt" || !c.Cluster.Enabled {
		t.Errorf("merged: %+v", c)
	}
	for key, want := range map[string]string{
		"strict": "n", "pools.reserved": "c", "pools.system": "f", "failurePolicy.hooks": "g", "cluster.enabled": "f",
		"pools.shared": "default", "hooks.cpuset.enabled": "default", "apiVersion": "n",
	} {
		if got := from.Of(key); got != want {
			t.Errorf("%s is from %s, want %s", key, got, want)
		}
	}
	over := c
	over.Log.Level = "debug"
	from.MarkChanged(c, over, config.SourceFlag)
	if from.Of("log.level") != config.SourceFlag || from.Of("log.format") != config.SourceDefault {
		t.Errorf("flags: %v", from)
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers []config.Layer
		want   []string
	}{
		{"an unknown key", []config.Layer{file("f", ""), shared("c", "pols: {}\n")}, []string{`c:3: pols: unknown key; nearest valid key "pools"`}},
		{"a value of a lower layer", []config.Layer{file("f", "log: {level: loud}\n"), shared("c", "strict: true\n")}, []string{"f:3: log.level: is"}},
		{"a value of a list that came later", []config.Layer{file("f", "dialects: []\n"), shared("c", "strict: true\ndialects: [nobody]\n")}, []string{"c:4: dialects[0]: is"}},
		{"how the server is found", []config.Layer{file("f", ""), shared("c", "cluster: {enabled: false}\npaths: {state: /x}\n")}, []string{
			"c:3: cluster: takes effect only in the node's own file", "c:4: paths: takes effect only in the node's own file",
		}},
		{"a layer of a newer version", []config.Layer{{Name: "c", Data: []byte("apiVersion: trimtab.io/v9\nkind: Config\n")}, file("f", "")}, []string{`c:1: apiVersion: is "trimtab.io/v9"`}},
		{"a layer that says not what it is", []config.Layer{file("f", ""), {Name: "c", Data: []byte("strict: true\n")}, file("g", "")}, []string{"c:1: apiVersion: is missing", "c:1: kind: is missing"}},
		{"the kubelet's", []config.Layer{{Name: "c", Data: []byte("kind: KubeletConfiguration\ncpuManagerPolicy: static\n")}}, []string{
			`c:1: kind: is "KubeletConfiguration", want "Config": 'trimtab config convert FILE' makes a configuration from this document`,
		}},
		{"no mapping", []config.Layer{file("f", ""), {Name: "c", Data: []byte("[]")}}, []string{"c:1: want a mapping"}},
		{"no layer that can be read", []config.Layer{{Name: "c", Data: nil}}, []string{"c: is empty"}},
		{"too large", []config.Layer{file("f", ""), shared("c", "#"+strings.Repeat("x", config.MaxSize))}, []string{"c: is larger than"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := config.Merge(c.layers...)
			if err == nil {
				t.Fatal("it is taken")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nlacks %s", err, want)
				}
			}
			if got := strings.Count(err.Error(), "\n") + 1; got != len(c.want) {
				t.Errorf("%d problems, want %d:\n%v", got, len(c.want), err)
			}
		})
	}
}

// TestMergeNeedsBoth: a key that needs another key may find it in another layer.
func TestMergeNeedsBoth(t *testing.T) {
	url := file("f", "podspec: {kubelet: {url: \"https://n1:10250\", certFile: /c}}\n")
	if _, _, err := config.Merge(url); err == nil {
		t.Error("certFile goes without keyFile")
	}
	if _, _, err := config.Merge(url, shared("c", "podspec: {kubelet: {keyFile: /k}}\n")); err != nil {
		t.Error(err)
	}
}
