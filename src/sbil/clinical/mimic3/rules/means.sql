-- The mean of the cohort's daily numbers over the days kept ($days of a stay at most).
SELECT covariate, round(avg(value), 4) AS mean
FROM daily
JOIN days USING (icustay_id, day)
WHERE number <= $days
GROUP BY covariate
