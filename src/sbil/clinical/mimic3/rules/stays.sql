-- Every stay with the first reason, if any, for which it is left out before its treatment is looked at.
WITH timed AS (
    SELECT
        icustay_id, subject_id, intime, outtime, dob,
        intime IS NOT NULL AND outtime IS NOT NULL AND outtime > intime AS has_times
    FROM icustays
    LEFT JOIN (SELECT subject_id, min(dob) AS dob FROM patients GROUP BY subject_id) USING (subject_id)
)
SELECT
    icustay_id, subject_id, intime, outtime,
    -- The days of a stay are the calendar days that it touches; one that ends at midnight does not touch the next.
    intime::DATE AS first_day,
    (outtime - INTERVAL 1 MICROSECOND)::DATE AS last_day,
    CASE
        WHEN NOT has_times THEN 'times'
        WHEN dob IS NULL THEN 'birth'
        WHEN intime < dob + to_years(16) THEN 'young'
        WHEN intime < max(outtime) FILTER (WHERE has_times) OVER (
            PARTITION BY subject_id ORDER BY intime, icustay_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) THEN 'overlap'
    END AS excluded
FROM timed
