package chart_test

import (
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/test/render"
)

// TestConfigInEnvironment: a program that runs in the container, as with kubectl trimtab, finds the agent's
// configuration, and with it a status socket at another path than the default.
func TestConfigInEnvironment(t *testing.T) {
	env := render.Chart(t, "config: {paths: {statusSocket: /run/other/t.sock}}").DaemonSet.Spec.Template.Spec.Containers[0].Env
	if len(env) == 0 || env[0].Name != "TRIMTAB_CONFIG" || env[0].Value != "/config/config.yaml" {
		t.Errorf("environment %v", env)
	}
}
