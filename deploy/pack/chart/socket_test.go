package chart_test

import (
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/test/render"
)

// TestConfigNamed: a program that is run in the container, as kubectl trimtab does, finds the agent's configuration, and
// by it a status socket that is not at its usual place.
func TestConfigNamed(t *testing.T) {
	env := render.Chart(t, "config: {paths: {statusSocket: /run/other/t.sock}}").DaemonSet.Spec.Template.Spec.Containers[0].Env
	if len(env) == 0 || env[0].Name != "TRIMTAB_CONFIG" || env[0].Value != "/config/config.yaml" {
		t.Errorf("environment %v", env)
	}
}
