package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// The files of the page about alerts, from the directory of this package.
const (
	monitoringFile = "../../../docs/monitoring.md"
	alertsFile     = "../../../deploy/charts/trimtab/alerts.yaml"
)

// alertRules are the groups of a rule file of Prometheus.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert  string            `json:"alert"`
			Expr   string            `json:"expr"`
			For    string            `json:"for"`
			Labels map[string]string `json:"labels"`
		} `json:"rules"`
	} `json:"groups"`
}

// monitoringPage returns the existing page. In the section of each alert, it replaces the line that says when the alert
// fires.
func monitoringPage() (string, error) {
	page, err := os.ReadFile(monitoringFile)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		return "", err
	}
	var rules alertRules
	if err := yaml.Unmarshal(text, &rules); err != nil {
		return "", fmt.Errorf("read %s: %w", alertsFile, err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			fires := regexp.MustCompile(`(?m)^### ` + r.Alert + `\n\n(?:Fires \((?:.+\n)+\n)?`)
			if !fires.Match(page) {
				return "", fmt.Errorf("%s has no section %s", monitoringFile, r.Alert)
			}
			after := "at once"
			if r.For != "" {
				after = "after " + r.For
			}
			line := wrapAtSpaces(fmt.Sprintf("Fires (%s, %s): `%s`.", r.Labels["severity"], after, r.Expr))
			page = fires.ReplaceAllLiteral(page, []byte("### "+r.Alert+"\n\n"+line+"\n"))
		}
	}
	return string(page), nil
}

// wrapAtSpaces breaks a text at spaces. It does so also in code spans, because Markdown reads a line break in a code
// span as a space.
func wrapAtSpaces(text string) string {
	const most = 120
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > most:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
