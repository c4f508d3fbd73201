// Package scenarios has scenarios as YAML files. A scenario says what happens to pods
// on a node, and which values must be in force afterwards. The test of this package
// plays each scenario with the real agent on the embedded runtime.
package scenarios
