//! Pseudo-random numbers: the same seed gives the same numbers on every machine, independent of any crate's release.

/// xoshiro256++ by Blackman and Vigna, seeded through splitmix64.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The stream for one incident: `seed` of the campaign, `index` of the incident.
    pub fn of(seed: u64, index: u64) -> Self {
        let mut state = seed ^ index.wrapping_mul(0xD1B5_4A32_D192_ED03).rotate_left(17);
        Self([(); 4].map(|()| splitmix(&mut state)))
    }

    /// An independent stream, seeded by one draw. Code that draws more from the fork does not shift the numbers of this stream.
    pub fn fork(&mut self) -> Self {
        Self::of(self.next(), 0)
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A uniform integer below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.unit() * bound as f64) as usize).min(bound.saturating_sub(1))
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform in [`from`, `to`).
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// Log-uniform in [`from`, `to`): as often between 1 and 10 as between 10 and 100.
    pub fn log_between(&mut self, from: f64, to: f64) -> f64 {
        self.between(from.ln(), to.ln()).exp()
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Log-normal with this median; `sigma` is the standard deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box-Muller transform. The second number is discarded, so that the generator has no further state.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        median * (sigma * radius * (std::f64::consts::TAU * self.unit()).cos()).exp()
    }

    /// Poisson distributed with this mean; above 30, the normal approximation.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
            return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }

    /// A uniformly chosen element; `None` when `from` is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }

    /// A random index, with probability proportional to its weight. Weights of 0 or less are never chosen.
    pub fn weighted(&mut self, weights: impl IntoIterator<Item = f64> + Clone) -> usize {
        let total: f64 = weights.clone().into_iter().sum();
        let mut left = self.unit() * total;
        let mut last = 0;
        for (index, weight) in weights.into_iter().enumerate() {
            if weight > 0.0 {
                last = index;
                if left < weight {
                    return index;
                }
            }
            left -= weight;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_index_gives_others() {
        let draw = |index| {
            let mut random = Random::of(7, index);
            [(); 4].map(|()| random.next())
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn distributions_have_the_means_and_medians_they_are_asked_for() {
        let mut random = Random::of(1, 1);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.1);
        assert!((mean(&mut || random.poisson(4.0) as f64) - 4.0).abs() < 0.1);
        assert!((mean(&mut || random.poisson(400.0) as f64) - 400.0).abs() < 1.0);
        let mut drawn: Vec<f64> = (0..20_001).map(|_| random.log_normal(2.0, 0.5)).collect();
        drawn.sort_by(f64::total_cmp);
        assert!((drawn[10_000] - 2.0).abs() < 0.05);
        let firsts = (0..10_000)
            .filter(|_| random.weighted([3.0, 0.0, 1.0]) == 0)
            .count();
        assert!((7_300..7_700).contains(&firsts), "{firsts}");
    }
}
