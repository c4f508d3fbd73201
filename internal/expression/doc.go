// Package expression evaluates expressions that compare properties of containers with values. The configuration and
// annotations of pods have such expressions. They have the meaning that containers/nri-plugins gives them (0.14,
// pkg/apis/resmgr/v1alpha1/expression.go).
package expression
