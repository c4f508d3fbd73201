package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/trimtab/trimtab/test/vm/agent"
)

// TestNeeds runs the agent beside a kubelet, and then without each of the kubelet's directories that
// needs.yaml of the chart mounts. With them it knows the spec of a pod and the CPU that the kubelet
// assigned. Without them it does not, and its log has the message of needs.yaml.
func TestNeeds(t *testing.T) {
	t.Parallel()
	testTurns.Play(t)
	text, err := os.ReadFile("../../../deploy/charts/trimtab/needs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var needs struct {
		Paths []struct{ Name, Default, Without, Shown string }
	}
	if err := yaml.Unmarshal(text, &needs); err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{"authority": "kubelet", "placement": map[string]any{"policy": "pools"}}
	n := boot(t, keys, map[string]any{
		"featureGates": map[string]bool{"PodsAPI": true}, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0",
	})
	for _, p := range needs.Paths {
		if p.Shown != "test/vm/kubelet TestNeeds" {
			continue
		}
		known := map[string]func(string) (bool, error){"pods": n.specKnown, "pod-resources": n.grantKnown}[p.Name]
		limits := map[string]map[string]string{"pod-resources": {"cpu": "1", "memory": "64Mi"}}[p.Name] // the kubelet gives it a whole CPU
		if known == nil || p.Without == "" {
			t.Fatalf("nothing shows what breaks without %s", p.Name)
		}
		n.knows(p.Name+"-with", limits, known, true)
		n.a.Kill()
		hidden := fmt.Sprintf("mount -t tmpfs none %s && exec %s agent --config %s", path.Dir(p.Default), agent.Program, agent.ConfigFile)
		pid := n.m.Spawn("without-"+p.Name, "unshare", "-m", "sh", "-c", hidden)
		if err := n.a.AwaitAttached(); err != nil {
			t.Fatal(err)
		}
		n.await("without "+p.Name, func() error {
			if log := n.m.Read("/var/log/without-" + p.Name + ".log"); !strings.Contains(log, p.Without) {
				return fmt.Errorf("%q is not in the log: %s", p.Without, log)
			}
			return nil
		})
		n.knows(p.Name+"-without", limits, known, false)
		n.m.Run("kill", "-9", strconv.Itoa(pid))
		if err := n.a.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// knows runs a pod, and waits until the agent uses, or lacks, the facts that it reads from a directory.
func (n *node) knows(name string, limits map[string]string, known func(string) (bool, error), want bool) {
	n.t.Helper()
	n.apply(pod{name: name, requests: limits, limits: limits})
	n.await(name, func() error {
		has, err := known(name)
		if err == nil && has != want {
			err = fmt.Errorf("the agent knows of %s: %v, want %v", name, has, want)
		}
		return err
	})
}

// specKnown reports whether the agent has a pod's spec from the kubelet's Pods API.
func (n *node) specKnown(name string) (bool, error) {
	found, err := n.a.Explain("shop", static(name), "c")
	if err != nil || len(found) != 1 || found[0].State != "running" {
		return false, errors.Join(err, fmt.Errorf("explain: %+v", found))
	}
	return slices.ContainsFunc(found[0].Facts, func(f struct{ Fact, Value, From string }) bool { return f.From == podsAPI }), nil
}

// grantKnown reports whether the agent has the CPU that the kubelet gave to a pod from the PodResources API.
func (n *node) grantKnown(name string) (bool, error) {
	found, err := n.a.Explain("shop", static(name), "c")
	if err != nil || len(found) != 1 || found[0].State != "running" {
		return false, errors.Join(err, fmt.Errorf("explain: %+v", found))
	}
	return strings.Contains(found[0].SeatWhy, "its PodResources API reports these CPUs"), nil
}
