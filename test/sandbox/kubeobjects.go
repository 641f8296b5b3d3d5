package sandbox

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// templateAnnotation carries the Template in the pods of Kube.
const templateAnnotation = "sandbox.slicecast.io/template"

// The only container of a pod.
const (
	containerName  = "app"
	containerImage = "sandbox"
)

// restartedAt is what `kubectl rollout restart` writes.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

func deploymentOf(w Workload) (*appsv1.Deployment, error) {
	template, err := w.Template.encode()
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"app": w.Name}
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if !w.Recreate {
		strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt(w.MaxSurge)), MaxUnavailable: new(intstr.FromInt(w.MaxUnavailable)),
			},
		}
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(w.Replicas)), Strategy: strategy, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{templateAnnotation: template}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(w.Template.Grace.Seconds())),
					AutomountServiceAccountToken:  new(false),
					Containers: []corev1.Container{{
						Name: containerName, Image: containerImage, Ports: []corev1.ContainerPort{{Name: PortName, ContainerPort: Port}},
					}},
				},
			},
		},
	}, nil
}

func serviceOf(w Workload) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": w.Name},
			Ports:    []corev1.ServicePort{{Name: PortName, Port: 80, TargetPort: intstr.FromString(PortName)}},
		},
	}
}
